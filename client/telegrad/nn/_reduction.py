"""Reductions of losses by number, and by the former pair of flags, as programs import them from PyTorch."""

from __future__ import annotations

from ._functional.losses import reduction_of

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """Return the number of a reduction."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """Return the reduction that the former pair of flags stands for."""
    return reduction_of(size_average, reduce, "mean")


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """Return the number of the reduction that the former pair of flags stands for."""
    return get_enum(legacy_get_string(size_average, reduce))
