"""The parts of joined products: each has results of its own, and columns that nothing else needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from server.engine.programs.fused import Kernel

NORMS: Final = ("_layer_norm", "_rms_norm")
"""Normalizations that rows may go through before they are multiplied."""


class Products(NamedTuple):
    """The attributes of joined products: the normalization before them, empty for none, what it adds to variances."""

    norm: str
    eps: float
    parts: tuple[Part, ...]


class Part(NamedTuple):
    """Products of one shape, and the element-wise kernel of their results; roles are those of a ``Joined``.

    ``sources`` has for each operand of the kernel its role, or that of the weight whose product it is.
    """

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    """For each weight; empty where nothing is added."""
    kernel: Kernel
    sources: tuple[str, ...]
    outs: tuple[str, ...]
    """The roles of the kernel's new values."""
