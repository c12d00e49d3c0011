"""Implementations of all operations, family by family in the contracts' order."""

from __future__ import annotations

from server.engine import autocast as _autocast  # files the Autocast keys' boxed kernels
from server.engine.autograd import kernel as _autograd  # files the Autograd key's boxed kernel
from server.engine.registry import check_complete

from . import (
    activations,
    amp,
    attention,
    attention_dropout,
    attention_steps,
    comparison,
    complex,
    convolution,
    creation,
    elementary,
    extremes,
    foreach,
    group_norms,
    indexing,
    linalg,
    linear,
    losses,
    nn,
    normalization,
    optim,
    pointwise,
    pooling,
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

from server.engine import cpu as _cpu_kernels  # isort: skip  # files kernels over those above

__all__ = [
    "_autocast", "_autograd", "_cpu_kernels", "activations", "amp", "attention", "attention_dropout",
    "attention_steps", "comparison", "complex", "convolution", "creation", "elementary", "extremes", "foreach",
    "group_norms", "indexing", "linalg", "linear", "losses", "nn", "normalization", "optim", "pointwise", "pooling",
    "random", "rearrange", "reduce", "scans", "scattering", "softmax", "sorting", "splitting", "spread", "views",
]  # fmt: skip

check_complete()
