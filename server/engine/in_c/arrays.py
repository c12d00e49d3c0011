"""Kernels that are called with arrays, in C where that is compiled: the same as `direct_runs` says.

Knows no operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine.in_c.values import module
from server.engine.operators import Run
from server.engine.value import Launch

_MOST_ARGUMENTS = 24
"""Functions that take more are called by Python."""


def prepare(backend: type, layout_of: Callable[[Any], tuple[Any, ...]]) -> None:
    """Make arrays in C; called once, with the class of the host's backends, and how arrays of a meta are laid out."""
    if module is not None:
        module.prepare_arrays({"CpuBackend": backend, "ndarray": np.ndarray, "layout_of": layout_of})


def _called_with(
    function: Callable[..., Any], arguments: tuple[Any, ...], places: tuple[tuple[int, int], ...],
    keywords: dict[str, Any],
) -> tuple[Any, ...] | None:  # fmt: skip
    if module is None or len(arguments) + len(keywords) >= _MOST_ARGUMENTS:
        return None
    return function, arguments, places, (*keywords, "out"), tuple(keywords.values())


def launch_of(
    function: Callable[..., Any], arguments: tuple[Any, ...], places: tuple[tuple[int, int], ...],
    keywords: dict[str, Any], is_single: bool,
) -> Launch | None:  # fmt: skip
    """Return what calls a function with arguments, with arrays of operands at places, and ``out``.

    ``places`` are pairs of a place and the number of an operand. None where that is Python's.
    """
    bound = _called_with(function, arguments, places, keywords)
    return None if bound is None else module.bound_to_kernel((*bound, is_single))


def run_in_place(
    function: Callable[..., Any], arguments: tuple[Any, ...], places: tuple[tuple[int, int], ...],
    keywords: dict[str, Any], apart: tuple[int, ...], otherwise: Run,
) -> Run | None:  # fmt: skip
    """Return what does the same to the first operand; ``otherwise`` where one of ``apart`` shares its memory."""
    bound = _called_with(function, arguments, places, keywords)
    return None if bound is None else module.bound_in_place((*bound, True, apart, otherwise))
