"""Loops over matrices: factorizations, systems, eigenvalues, singular values, and calls of LAPACK for batches.

The modules are loaded one by one.
"""
