"""Matrix products: cuBLASLt, cuBLAS and our own kernels, and the choice between them."""

from __future__ import annotations
