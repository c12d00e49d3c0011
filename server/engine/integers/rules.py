"""Operations that tell the least and the greatest integer of what they make, such as places of largest scores.

Some are told by their arguments alone, others by the bounds of their operands, and some move elements and make none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from telegrad_protocol import dtypes

from .elements import Bounds, is_integral

BoundsOf: TypeAlias = Callable[[Any], "Bounds | None"]
"""Tells the bounds of an operand, None where they are not known; those of an integer are itself."""
Rule: TypeAlias = Callable[[dict[str, Any], BoundsOf], "Bounds | None"]
"""The bounds of a result, by the names of the arguments."""


def is_widened(args: dict[str, Any]) -> bool:
    """Whether a cast keeps every integer."""
    source, target = args["input"].meta, args["dtype"] or args["input"].dtype
    is_wide = target in (dtypes.int32, dtypes.int64) and source.dtype.itemsize <= target.itemsize
    return source.dtype is dtypes.bool_ or (is_integral(source) and is_wide)


def rule_of(name: str) -> Rule | None:
    """Return the rule of an operation in its usual form; None where it tells nothing."""
    return _moved(name) if name in MOVES and name not in ("cat", "stack") else RULES.get(name)


def _moved(name: str) -> Rule:
    operand = MOVES[name]
    if name == "_to_copy":
        return lambda args, bounds_of: bounds_of(args[operand]) if is_widened(args) else None
    return lambda args, bounds_of: bounds_of(args[operand])


MOVES: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("clone", "_in_layout", "_to_copy", "flip", "roll", "repeat", "index_select", "gather", "index", "take",
         "masked_select", "cummax", "cummin"), "input"
    ),
    "cat": "tensors", "stack": "tensors",
}  # fmt: skip
"""Operations whose first results have elements of one operand alone, and that operand; casts may have others."""


def _sum(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    first, second, alpha = bounds_of(args["input"]), bounds_of(args["other"]), args.get("alpha", 1)
    if first is None or second is None or alpha.__class__ is not int:
        return None
    terms = sorted([alpha * number for number in second])
    return first[0] + terms[0], first[1] + terms[1]


def _difference(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    alpha = args.get("alpha", 1)
    return _sum({**args, "alpha": -alpha}, bounds_of) if alpha.__class__ is int else None


def _product(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    first, second = bounds_of(args["input"]), bounds_of(args["other"])
    if first is None or second is None:
        return None
    corners = [a * b for a in first for b in second]
    return min(corners), max(corners)


def _remainder(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    divisor = args["other"]
    if divisor.__class__ is not int or divisor <= 0:
        return None
    known = bounds_of(args["input"])
    is_below = known is not None and known[0] >= 0 and known[1] < divisor
    return known if is_below else (0, divisor - 1)


def _quotient(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    known, divisor = bounds_of(args["input"]), args["other"]
    if known is None or divisor.__class__ is not int or divisor <= 0:
        return None
    if args.get("rounding_mode", "floor") == "floor":
        return known[0] // divisor, known[1] // divisor
    return (0, known[1] // divisor) if known[0] >= 0 and args["rounding_mode"] == "trunc" else None


def _clamped(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    """What is below the lower limit becomes that, and then what is above the upper one becomes that."""
    low, high = args.get("min"), args.get("max")
    if any([limit is not None and limit.__class__ is not int for limit in (low, high)]):
        return None
    known = bounds_of(args["input"]) or (None if low is None or high is None else (low, high))
    if known is None:
        return None
    least, greatest = [number if low is None else max(number, low) for number in known]
    return (least, greatest) if high is None else (min(least, high), min(greatest, high))


def _either(args: dict[str, Any], bounds_of: BoundsOf) -> Bounds | None:
    first, second = bounds_of(args["input"]), bounds_of(args["other"])
    return None if first is None or second is None else (min(first[0], second[0]), max(first[1], second[1]))


def _counted(args: dict[str, Any], _: BoundsOf) -> Bounds | None:
    start, end, step = args.get("start", 0), args["end"], args.get("step", 1)
    if not all([isinstance(number, int) for number in (start, end, step)]):
        return None
    numbers = range(start, end, step) if step else range(0)
    return (min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])) if numbers else (0, 0)


def _drawn(args: dict[str, Any], _: BoundsOf) -> Bounds | None:
    return args.get("low", 0), args["high"] - 1


def _along(args: dict[str, Any], _: BoundsOf) -> Bounds | None:
    shape, dim = args["input"].meta.shape, args.get("dim")
    return 0, (math.prod(shape) if dim is None else shape[dim] if shape else 1) - 1


def _filled(args: dict[str, Any], _: BoundsOf) -> Bounds | None:
    number = args["fill_value"]
    return (number, number) if isinstance(number, int) else None


def _between(boundaries: str) -> Rule:
    def rule(args: dict[str, Any], _: BoundsOf) -> Bounds | None:
        return 0, args[boundaries].meta.shape[-1]

    return rule


RULES: Final[dict[str, Rule]] = {
    "add": _sum, "sub": _difference, "mul": _product, "remainder": _remainder, "floor_divide": _quotient,
    "div.mode": _quotient, "clamp": _clamped, "where": _either, "maximum": _either, "minimum": _either,
    "copy": lambda args, bounds_of: bounds_of(args["src"]),
    "arange": _counted, "arange.start": _counted, "full": _filled, "full_like": _filled,
    **dict.fromkeys(("randint", "randint.low", "randint_like", "randint_like.low"), _drawn),
    **dict.fromkeys(("zeros", "zeros_like"), lambda args, _: (0, 0)),
    **dict.fromkeys(("ones", "ones_like"), lambda args, _: (1, 1)),
    **dict.fromkeys(("argmax", "argmin", "argsort"), _along),
    "randperm": lambda args, _: (0, args["n"] - 1),
    "multinomial": lambda args, _: (0, args["input"].meta.shape[-1] - 1),
    "nonzero": lambda args, _: (0, max(args["input"].meta.shape, default=1) - 1),
    "searchsorted": _between("sorted_sequence"), "bucketize": _between("boundaries"),
}  # fmt: skip
"""Rules of first results."""
PLACES: Final[frozenset[str]] = frozenset(
    ("topk", "sort", "kthvalue", "mode", "max.dim", "min.dim", "median.dim", "nanmedian.dim", "cummax", "cummin")
)
"""Operations whose second results are places in the dimension ``dim``."""


def places_found(args: dict[str, Any]) -> Bounds:
    """Return the bounds of the second result of ``PLACES``."""
    shape = args["input"].meta.shape
    return 0, (shape[args["dim"]] if shape else 1) - 1
