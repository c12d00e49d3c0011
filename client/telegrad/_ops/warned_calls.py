"""Calls that PyTorch warns of: those in older forms, and those that are allowed and are mostly mistakes.

In older forms numbers stand before tensors: ``p.add_(-lr, g)`` for ``p.add_(g, alpha=-lr)``. Mistakes are targets of
losses that are broadcast, and spreads without freedom. Of these the plan of a call warns as it is made, which is once
for operands of the same metas: Python shows a warning once for a line anyway, and calls whose plan is known take no
longer.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Number
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.meta import Meta
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
_LOSSES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
_SPREADS = frozenset(("std", "var", "std_mean", "var_mean"))


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


def warn_of(op: Op, given: Sequence[Any], inferred: Any) -> None:
    """Warn, with PyTorch's words, of a call whose arguments are ``given``, tensors as metas, and of its result."""
    message = None
    if op.public in _LOSSES:
        message = _broadcast_target(given[0], given[1])
    elif op.public in _SPREADS:
        message = _no_freedom(op, given, inferred[0] if isinstance(inferred, tuple) else inferred)
    elif op.public == "cross" and given[2] is None:
        message = (
            "Using torch.cross without specifying the dim arg is deprecated. Please either pass the dim explicitly or "
            "simply use torch.linalg.cross, whose dim is the last one"
        )
    if message is not None:
        warnings.warn(message, UserWarning, stacklevel=2)


def _broadcast_target(input: Meta, target: Meta) -> str | None:
    if input.shape == target.shape:
        return None
    return (
        f"Using a target size ({_size(target)}) that is different to the input size ({_size(input)}). This will likely "
        "lead to incorrect results due to broadcasting. Please ensure they have the same size."
    )


def _size(meta: Meta) -> str:
    return f"torch.Size({list(meta.shape)})"


def _no_freedom(op: Op, given: Sequence[Any], result: Meta) -> str | None:
    named = dict(zip([param.name for param in op.params], given, strict=True))
    correction = named.get("correction")
    lost = int(named.get("unbiased", True)) if correction is None else correction
    if not result.numel or named["input"].numel // result.numel > lost:
        return None
    return (
        f"{op.public}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
        "(input numel divided by output numel)."
    )
