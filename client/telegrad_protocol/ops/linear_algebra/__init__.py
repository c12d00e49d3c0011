"""Contracts of linear algebra: products, factorizations, solutions, spectra, and functions of matrices."""
