"""Implementations of all operations, family by family in the contracts' order."""

from ..autograd import kernel as _autograd  # files the Autograd key's boxed kernel
from . import creation, indexing, linalg, nn, optim, pointwise, rearrange, reduce, views
from ..operators import check_complete

__all__ = ["_autograd", "creation", "indexing", "linalg", "nn", "optim", "pointwise", "rearrange", "reduce", "views"]

check_complete()
