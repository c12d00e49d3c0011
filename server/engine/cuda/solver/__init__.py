"""Linear algebra on GPUs: cuBLAS and cuSOLVER written to directly, and kernels of our own for small matrices."""
