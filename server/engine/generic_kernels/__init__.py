"""Runs of kernels that are functions of arrays, of NumPy or CuPy: what their operands and results need around them."""
