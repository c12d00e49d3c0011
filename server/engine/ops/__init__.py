"""Implementations of all operations, family by family in the contracts' order."""

from __future__ import annotations

from .. import autocast as _autocast  # files the Autocast keys' boxed kernels
from ..autograd import kernel as _autograd  # files the Autograd key's boxed kernel
from ..operators import check_complete
from . import (
    activations,
    attention,
    comparison,
    complex,
    convolution,
    creation,
    elementary,
    extremes,
    indexing,
    linalg,
    losses,
    nn,
    normalization,
    optim,
    pointwise,
    random,
    rearrange,
    reduce,
    scans,
    scattering,
    softmax,
    sorting,
    splitting,
    spread,
    views,
)

__all__ = [
    "_autocast", "_autograd", "activations", "attention", "comparison", "complex", "convolution", "creation",
    "elementary", "extremes", "indexing", "linalg", "losses", "nn", "normalization", "optim", "pointwise", "random",
    "rearrange", "reduce", "scans", "scattering", "softmax", "sorting", "splitting", "spread", "views",
]  # fmt: skip

check_complete()
