"""``torch._tensor``: the class of tensors, and what makes tensors of a file again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._tensor.tensor import Tensor as Tensor


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    """Return what the function makes of its arguments, as an object of this class and with these attributes."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if state is not None:
        made.__dict__.update(state[0] if isinstance(state, tuple) else state)
    return made


def _convert(ret: Any, cls: type) -> Any:
    """Return tensors, in tuples and lists too, as objects of a class."""
    if cls is Tensor:
        return ret
    if isinstance(ret, Tensor) and not isinstance(ret, cls):
        return ret.as_subclass(cls)
    return type(ret)([_convert(part, cls) for part in ret]) if isinstance(ret, (tuple, list)) else ret
