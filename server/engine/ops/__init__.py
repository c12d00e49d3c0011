"""Implementations of all operations, family by family in the contracts' order."""

from ..autograd import kernel as _autograd  # files the Autograd key's boxed kernel
from . import (
    creation, indexing, linalg, losses, nn, normalization, optim, pointwise, rearrange, reduce, scans, softmax, sorting, views,
)  # fmt: skip
from ..operators import check_complete

__all__ = [
    "_autograd", "creation", "indexing", "linalg", "losses", "nn", "normalization", "optim",
    "pointwise", "rearrange", "reduce", "scans", "softmax", "sorting", "views",
]  # fmt: skip

check_complete()
