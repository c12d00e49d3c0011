"""Warnings of calls that are allowed and are mostly mistakes: broadcast targets of losses, spreads without freedom.

The plan of a call gives them as it is made, which is once for operands of the same metas: Python shows a warning once
for a line anyway, and calls whose plan is known take no longer.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

_LOSSES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
_SPREADS = frozenset(("std", "var", "std_mean", "var_mean"))


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
