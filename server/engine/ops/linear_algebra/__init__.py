"""Implementations of linear algebra: products, factorizations, solutions, spectra, functions and norms of matrices."""
