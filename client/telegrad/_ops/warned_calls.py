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

from telegrad._session.own_code import note_once
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import bool_
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
_FORMER: Final = {
    "qr": "torch.linalg.qr", "cholesky": "torch.linalg.cholesky", "triangular_solve": "torch.linalg.solve_triangular",
    "lu_solve": "torch.linalg.lu_solve",
}  # fmt: skip
"""Functions that PyTorch deprecates, and what stands for them."""
_CASTING = frozenset(("_to_copy", "copy_", "fill_", "sum", "prod", "cumsum", "cumprod"))
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
    if op.public in _LOSSES and given[0].shape != given[1].shape:
        message = _broadcast_target(given[0], given[1])
    elif op.public in _SPREADS:
        message = _no_freedom(op, given, inferred[0] if isinstance(inferred, tuple) else inferred)
    elif op.public in _FORMER:
        message = (
            f"torch.{op.public} is deprecated in favor of {_FORMER[op.public]} and will be removed in a future release."
        )
    elif op.public == "kl_div" and given[2] is given[3] is None and given[4] == "mean":
        message = (
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition."
        )
    elif op.public == "softmin" and given[1] is None:
        message = "Implicit dimension choice for softmin has been deprecated. Change the call to include dim=X."
    elif op.name in _CASTING and _discards_imaginary_part(op, given, inferred):
        note_once("Casting complex values to real discards the imaginary part")
    elif op.public in ("searchsorted", "bucketize"):
        _note_copies(op.public, given)
    elif op.public == "cross" and given[2] is None:
        message = (
            "Using torch.cross without specifying the dim arg is deprecated. Please either pass the dim explicitly or "
            "simply use torch.linalg.cross, whose dim is the last one"
        )
    elif op.module == "nn.functional" and _is_in_older_form(op, given):
        message = "size_average and reduce args will be deprecated, please use the argument reduction instead."
    if message is not None:
        warnings.warn(message, UserWarning, stacklevel=2)


def _note_copies(name: str, given: Sequence[Any]) -> None:
    for operand, what in zip(given[:2] if name == "searchsorted" else given[1::-1], ("boundary", "input value")):
        if isinstance(operand, Meta) and not operand.is_contiguous:
            note_once(
                f"torch.searchsorted(): {what} tensor is non-contiguous, this will lower the performance due to extra "
                "data copy when converting non-contiguous tensor to contiguous, please use contiguous tensors."
            )


def _is_in_older_form(op: Op, given: Sequence[Any]) -> bool:
    named = dict(zip([param.name for param in op.params], given, strict=True))
    return named.get("size_average") is not None or named.get("reduce") is not None


def _discards_imaginary_part(op: Op, given: Sequence[Any], inferred: Any) -> bool:
    source = given[1] if op.mutates else given[0]
    result = given[0] if op.mutates else inferred
    return (
        isinstance(source, Meta)
        and isinstance(result, Meta)
        and source.dtype.is_complex
        and not result.dtype.is_complex
        and result.dtype is not bool_
    )


def _broadcast_target(input: Meta, target: Meta) -> str:
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
