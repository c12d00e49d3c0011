"""Products with sparse matrices: cuSPARSE for those with dense ones, our own kernels for samples and for checks."""

from __future__ import annotations
