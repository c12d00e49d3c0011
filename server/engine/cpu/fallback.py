"""The call of a generic kernel by a CPU kernel that takes half precision: operands and results pass through float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .halves import is_half, narrow, widen


def call_generic(function: Callable[..., Any], *args: Any, out: Any, **keywords: Any) -> None:
    """Run a generic kernel that writes ``out``, one array or several."""
    outs = out if out.__class__ is tuple else (out,)
    targets = tuple([np.empty(o.shape, np.float32) if is_half(o) else o for o in outs])
    operands = [_as_float32(arg) for arg in args]
    function(np, *operands, out=targets if out.__class__ is tuple else targets[0], **keywords)
    for target, result in zip(targets, outs, strict=True):
        if target is not result:
            narrow(target, result)


def _as_float32(arg: Any) -> Any:
    if arg.__class__ is not np.ndarray or not is_half(arg):
        return arg
    copy = np.empty(arg.shape, np.float32)
    widen(arg, copy)
    return copy
