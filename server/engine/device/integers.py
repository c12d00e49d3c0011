"""What the host knows of integers that a device holds, so that it need not wait to look whether indices are good.

Operations on what is known tell of what they make: a position that is counted up, a token that is the place of the
largest score. They are noted as they are executed, on devices that the host cannot look into.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from ..value import CHANGING, Storage, Value, memory_of

Bounds: TypeAlias = tuple[int, int]
"""The least and the greatest integer that can be there."""
_LIMITS: Final = {
    dtypes.int64: 63, dtypes.int32: 31, dtypes.int16: 15, dtypes.int8: 7,
}  # fmt: skip
"""Bits of the integers that each type holds, whose bounds are noted."""


class Elements(NamedTuple):
    """What a tensor of integers holds, at a version of its storage, in the layout of ``meta``.

    ``low`` and ``high`` are its least and greatest element, ``negative`` is the greatest negative one, if there is one.
    Where they are not exact, they are bounds that operations have told, and nobody has looked.
    """

    version: int
    meta: Meta
    low: int
    high: int
    negative: int
    is_exact: bool = True


def tells(known: Any, storage: Storage, read: Meta) -> bool:
    """Whether elements that are known are those that are read now."""
    return known.__class__ is Elements and known.version == storage.version and covers(known.meta, read)


def is_integral(meta: Meta) -> bool:
    """Whether a tensor can hold indices."""
    return meta.dtype in (dtypes.int64, dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint8)


def covers(known: Meta, read: Meta) -> bool:
    """Whether elements that are read are among those that are known."""
    if known is read:
        return True
    begin, end = known.offset, known.extent
    return known.is_contiguous and known.dtype is read.dtype and begin <= read.offset and read.extent <= end


def is_widened(args: dict[str, Any]) -> bool:
    """Whether a cast keeps every integer."""
    source, target = args["input"].meta, args["dtype"] or args["input"].dtype
    is_wide = target in (dtypes.int32, dtypes.int64) and source.dtype.itemsize <= target.itemsize
    return source.dtype is dtypes.bool_ or (is_integral(source) and is_wide)


def bounds_of(value: Any) -> Bounds | None:
    """The bounds of what a value holds, where they are known; a number's are itself."""
    if value.__class__ is int:
        return value, value
    if value.__class__ is not Value:
        return None
    storage = memory_of(value.storage)
    known: Any = getattr(storage, "elements", None)
    return (known.low, known.high) if tells(known, storage, value.meta) else None


def note_bounds(value: Value, bounds: Bounds | None) -> None:
    """Note the bounds of what was just written to a value, unless others may write there uncounted."""
    storage, limit = value.storage, _LIMITS.get(value.meta.dtype)
    if bounds is None or limit is None or storage.keeper is not None:
        return
    low, high = bounds
    if low >= -1 << limit and high < 1 << limit and getattr(storage, "elements", None) is not CHANGING:
        storage.elements = Elements(storage.version, value.meta, low, high, min(high, -1), False)


def uncount_write(storage: Storage) -> None:
    """Take back that a storage was counted as written to; what is known of its elements may be of a later count."""
    storage.version -= 1
    if getattr(storage, "elements", None) is not CHANGING:
        storage.elements = None


def noting(op: Op, made: Meta | None, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``run``, which notes the bounds of what it makes or writes to, for operations that tell them.

    ``made`` is the meta of the one result, or of the first operand where that is written to.
    """
    rule = _rule_of(op.base.name.removesuffix("_"))
    if rule is None or made is None or made.dtype not in _LIMITS or op.mutates not in ((), (0,)):
        return run
    names, mutates = [param.name for param in op.params], bool(op.mutates)

    def noted(args: Any) -> Any:
        bounds = rule(dict(zip(names, args)))
        result = run(args)
        note_bounds(args[0] if mutates else result, bounds)
        return result

    return noted


def _rule_of(name: str) -> Callable[[dict[str, Any]], Bounds | None] | None:
    if name in MOVES and name not in ("cat", "stack"):
        return lambda args: bounds_of(args[MOVES[name]]) if name != "_to_copy" or is_widened(args) else None
    return _COMPUTED.get(name) or FOUND.get(name)


def _sum(args: dict[str, Any]) -> Bounds | None:
    first, second, alpha = bounds_of(args["input"]), bounds_of(args["other"]), args.get("alpha", 1)
    if first is None or second is None or alpha.__class__ is not int:
        return None
    terms = sorted([alpha * number for number in second])
    return first[0] + terms[0], first[1] + terms[1]


def _difference(args: dict[str, Any]) -> Bounds | None:
    alpha = args.get("alpha", 1)
    return _sum({**args, "alpha": -alpha}) if alpha.__class__ is int else None


def _remainder(args: dict[str, Any]) -> Bounds | None:
    divisor = args["other"]
    if divisor.__class__ is not int or divisor <= 0:
        return None
    known = bounds_of(args["input"])
    is_below = known is not None and known[0] >= 0 and known[1] < divisor
    return known if is_below else (0, divisor - 1)


def _copied(args: dict[str, Any]) -> Bounds | None:
    source = args["src"]
    return bounds_of(source) if source.__class__ is Value and is_integral(source.meta) else None


_COMPUTED: Final[dict[str, Callable[[dict[str, Any]], Bounds | None]]] = {
    "add": _sum, "sub": _difference, "remainder": _remainder, "copy": _copied,
}  # fmt: skip
"""Operations on known integers that tell the bounds of what they make."""
MOVES: Final[dict[str, str]] = {
    **dict.fromkeys(("clone", "_in_layout", "_to_copy", "flip", "roll", "repeat", "index_select", "gather"), "input"),
    "cat": "tensors", "stack": "tensors",
}  # fmt: skip
"""Operations whose results have elements of an operand alone, and that operand; casts keep integers or fail to."""


def _counted(args: dict[str, Any]) -> Bounds | None:
    start, end, step = args.get("start", 0), args["end"], args.get("step", 1)
    if not all([isinstance(number, int) for number in (start, end, step)]):
        return None
    numbers = range(start, end, step) if step else range(0)
    return (min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])) if numbers else (0, 0)


def _drawn(args: dict[str, Any]) -> Bounds | None:
    return args.get("low", 0), args["high"] - 1


def _along(args: dict[str, Any]) -> Bounds | None:
    shape, dim = args["input"].meta.shape, args.get("dim")
    return 0, (math.prod(shape) if dim is None else shape[dim] if shape else 1) - 1


def _filled(args: dict[str, Any]) -> Bounds | None:
    number = args["fill_value"]
    return (number, number) if isinstance(number, int) else None


FOUND: Final[dict[str, Callable[[dict[str, Any]], Bounds | None]]] = {
    "arange": _counted, "arange.start": _counted, "full": _filled, "full_like": _filled,
    **dict.fromkeys(("randint", "randint.low", "randint_like", "randint_like.low"), _drawn),
    **dict.fromkeys(("zeros", "zeros_like"), lambda args: (0, 0)),
    **dict.fromkeys(("ones", "ones_like"), lambda args: (1, 1)),
    **dict.fromkeys(("argmax", "argmin", "argsort"), _along),
    "randperm": lambda args: (0, args["n"] - 1), "multinomial": lambda args: (0, args["input"].meta.shape[-1] - 1),
}  # fmt: skip
"""Operations whose results lie between two numbers that their arguments tell."""
