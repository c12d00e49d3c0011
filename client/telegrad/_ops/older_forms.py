"""The forms of older PyTorch, whose numbers stand before tensors: ``p.add_(-lr, g)`` for ``p.add_(g, alpha=-lr)``."""

from __future__ import annotations

import warnings
from numbers import Number
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.ops import Op

_SUM: Final[dict[str, tuple[str, ...]]] = {"TNT": ("alpha",)}
_PRODUCT: Final[dict[str, tuple[str, ...]]] = {"TNTT": ("value",)}
_MATRICES: Final[dict[str, tuple[str, ...]]] = {
    "NTNTT": ("beta", "alpha"), "NTTT": ("beta",), "TNNTT": ("beta", "alpha"), "TNTT": ("beta",),
}  # fmt: skip
_FORMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("add", "sub", "subtract"), _SUM),
    **dict.fromkeys(("addcmul", "addcdiv"), _PRODUCT),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), _MATRICES),
}
"""For each function the places of tensors (T) and numbers (N) in its older forms, and what those numbers are called."""
_told: list[str] = []


def has_older_forms(public: str) -> bool:
    """Tell whether a function, or the one that it is the in-place form of, has older forms."""
    return public.rstrip("_") in _FORMS


def in_todays_form(op: Op, args: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the operands and the numbers by name of a call in an older form, None for any other; warn once."""
    if len(args) < 3:
        return None
    names = _FORMS[op.public.rstrip("_")].get("".join(map(_letter, args)))
    if names is None:
        return None
    _warn(op)
    numbers = [argument for argument in args if not isinstance(argument, Tensor)]
    return [argument for argument in args if isinstance(argument, Tensor)], dict(zip(names, numbers, strict=True))


def _letter(argument: Any) -> str:
    return "T" if isinstance(argument, Tensor) else "N" if isinstance(argument, Number) else "?"


def _warn(op: Op) -> None:
    if not _told:
        _told.append(op.public)
        warnings.warn(
            f"This overload of {op.public} is deprecated:\n\tits numbers stand before its tensors\n"
            f"Consider using one of the following signatures instead:\n\t{op.signature}",
            stacklevel=5,
        )
