"""Loops over matrices: factorizations, systems, eigenvalues and singular values. The modules are loaded one by one."""
