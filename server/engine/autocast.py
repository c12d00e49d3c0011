"""Autocast: the boxed kernel of its keys casts operands as the tables of ``telegrad_protocol.autocast`` say.

It runs above Autograd, so that casts are differentiated like any operation and inputs are saved in the type they are
computed in. Below it, and within a composite, autocast is off for that type of device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad_protocol.autocast import Autocast, Casting, casting_of, rule_of
from telegrad_protocol.dtypes import DType, float32

from . import context, keys
from . import functional as F
from .dispatcher import BOXED, dispatch, redispatch, select_by
from .operators import OPERATORS, Operator
from .replay.remembered import remember
from .signature import metas_of
from .value import Value

Arguments = tuple[Any, ...]

_KEYS = {"cpu": (keys.AUTOCAST_CPU, keys.CPU), "cuda": (keys.AUTOCAST_CUDA, keys.CUDA)}
_ALL = keys.AUTOCAST_CPU | keys.AUTOCAST_CUDA


class WeightCasts:
    """A cache of casts of weights, as long as autocast is on.

    As in PyTorch, weights are leaves that require a gradient and are no views. A weight that was modified is cast
    again, as is one that was cast under another grad mode or on another stream.
    """

    __slots__ = ("_casts",)

    def __init__(self) -> None:
        self._casts: dict[tuple[Any, ...], tuple[Value, int, Value]] = {}

    def __len__(self) -> int:
        """How many casts are kept."""
        return len(self._casts)

    def cast(self, value: Value, dtype: DType) -> Value:
        """``value`` as ``dtype``, from the cache if that cast is still valid."""
        ctx = context.current
        key = (id(value), dtype, ctx.grad_enabled and not ctx.inference, ctx.streams.get(value.device))
        kept = self._casts.get(key)
        version = value.storage.version
        if kept is not None and kept[1] == version:
            return kept[2]
        cast: Value = F._to_copy(value, dtype=dtype)
        self._casts[key] = (value, version, cast)  # keeping the value keeps its id from being used again
        return cast

    def clear(self) -> None:
        """Forget all casts."""
        self._casts.clear()


def set_autocast(ctx: context.Context, autocast: Autocast | None) -> None:
    """Turn autocast on with these settings for ``ctx``, or off if there are none."""
    ctx.included &= ~_ALL
    ctx.autocast = autocast
    for device_type, _ in autocast.dtypes if autocast is not None else ():
        ctx.included |= _KEYS[device_type][0]


def clear_cache(ctx: context.Context) -> None:
    """Forget the casts of weights."""
    if ctx.casts is not None:
        ctx.casts.clear()


def _boxed(device_type: str) -> Callable[..., Any]:
    key, _ = _KEYS[device_type]
    below = keys.below(key)

    def autocast_kernel(operator: Operator, args: Arguments, signature: Arguments, key_set: int) -> Any:
        """Cast, then redispatch with this key excluded."""
        ctx = context.current
        casting = _casting(operator, args, signature, device_type)
        if casting is None and not _is_composite(operator):
            return redispatch(operator, args, signature, key_set & below)
        excluded = ctx.excluded
        ctx.excluded = excluded | key
        try:
            if casting is None:
                return redispatch(operator, args, signature, key_set & below)
            cast = partial(_cast, target=casting.target, device_type=device_type)
            op, changed = casting.changed(operator.op, args, cast)
            return dispatch(operator if op is operator.op else OPERATORS[op.name], changed)
        finally:
            ctx.excluded = excluded

    return autocast_kernel


def _is_composite(operator: Operator) -> bool:
    return operator.composite is not None or OPERATORS[operator.op.base.name].composite is not None


def _casting(operator: Operator, args: Arguments, signature: Arguments, device_type: str) -> Casting | None:
    """How the operands of a call are cast, None for not at all; worked out once per signature."""
    lower = context.current.autocast.lower[device_type]  # type: ignore[union-attr]
    key = (signature, device_type, lower)
    casting: Casting | None = operator.castings.get(key, _UNKNOWN)
    if casting is _UNKNOWN:
        casting = casting_of(operator.op, metas_of(args), device_type, lower)
        if casting is not None and casting == Casting(casting.target) and not _is_composite(operator):
            casting = None
        remember(operator.castings, key, casting)
    return casting


_UNKNOWN: Any = object()


def _cast(argument: Any, target: DType, device_type: str) -> Any:
    if argument.__class__ is tuple:
        return tuple([_cast(item, target, device_type) for item in argument])
    if argument.__class__ is not Value or not _changes(argument, target, device_type):
        return argument
    ctx = context.current
    if target is float32 or not _is_weight(argument) or not ctx.autocast.cache_enabled:  # type: ignore[union-attr]
        return F._to_copy(argument, dtype=target)
    if ctx.casts is None:
        ctx.casts = WeightCasts()
    return ctx.casts.cast(argument, target)


def _changes(value: Value, target: DType, device_type: str) -> bool:
    dtype = value.meta.dtype
    return dtype is not target and dtype.is_floating_point and dtype.itemsize <= 4 and value.device.type == device_type


def _is_weight(value: Value) -> bool:
    known = value.autograd
    return (
        value.meta.dtype is float32
        and value.base is None
        and known is not None
        and known.requires_grad
        and known.grad_fn is None
    )


def _concerns(device_type: str) -> Callable[[Operator, int], bool]:
    backend = _KEYS[device_type][1]

    def concerns(operator: Operator, key_set: int) -> bool:
        """Whether an operation of these keys has a rule, or parts that may have."""
        return bool(key_set & backend) and (rule_of(operator.op, device_type) is not None or _is_composite(operator))

    return concerns


for _device_type, (_key, _) in _KEYS.items():
    BOXED[_key] = _boxed(_device_type)
    select_by(_key, _concerns(_device_type))
