"""Our own CUDA kernels: how they are compiled, kept and launched, and one module per family of operations.

Imported with the first CUDA device; nothing here is needed, or imported, without one.
"""
