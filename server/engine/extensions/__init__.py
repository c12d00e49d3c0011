"""Extensions in C++ and CUDA that clients bring: building them, loading them, and calling their functions.

``include`` has the headers that they are compiled against. They run in this process: whoever may load one may do what
the process may. Knows sessions only as the context that operations run under.
"""
