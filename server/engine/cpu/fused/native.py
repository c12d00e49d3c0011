"""What operations compute of one element, as instructions of LLVM: those whose results are rounded in one known way.

They are what NumPy computes, to the bit: arithmetic, roots, comparisons, selections and conversions. Exponentials
and hyperbolic tangents are those of the compiled loops, where these compute them. Other functions are NumPy's own, and
are not here.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from typing import Any, Protocol

from server.engine.array_library.cache_blocks import number
from server.engine.array_library.dtypes import COMPUTED_IN, HALVES, NUMPY_DTYPES
from server.engine.compiled import LEAST, kernels
from server.engine.programs.fused import Compute, is_cast
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

Builder = Any
Val = Any
Emit = Callable[[Builder, dict[str, Any], Any], Any]
"""Gives the result of the builder, the operands and numbers by name, and the functions for the type computed in."""
_FLOATS = frozenset((dtypes.float32, dtypes.float64))
_INTEGERS = frozenset((dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64))
_SINGLES = HALVES | {dtypes.float32}
_KNOWN = _FLOATS | _INTEGERS | HALVES | {dtypes.bool_}


class Numbers(Protocol):
    """The numbers that a loop gets when it runs, so that the same chain with other numbers is the same text."""

    def take(self, held: bytes, kind: Any) -> Val:
        """Return the instruction that reads a number of a type, given as its bytes."""


class Float:
    """Arithmetic of single and double precision."""

    def __init__(self, ir: Any, builder: Any, dtype: DType, numbers: Numbers) -> None:
        self.ir, self.b, self.dtype, self.numbers = ir, builder, dtype, numbers
        self.type = ir.DoubleType() if dtype is dtypes.float64 else ir.FloatType()

    def constant(self, value: int) -> Val:
        """A number that the operation always has, as the type holds it."""
        return self.ir.Constant(self.type, float(value))

    def number(self, value: Any) -> Val:
        """A number that a program has given, which the loop gets when it runs."""
        return self.numbers.take(number(value, NUMPY_DTYPES[self.dtype]).tobytes(), self.type)

    def add(self, x: Val, y: Val) -> Val:
        return self.b.fadd(x, y)

    def sub(self, x: Val, y: Val) -> Val:
        return self.b.fsub(x, y)

    def mul(self, x: Val, y: Val) -> Val:
        return self.b.fmul(x, y)

    def div(self, x: Val, y: Val) -> Val:
        return self.b.fdiv(x, y)

    def neg(self, x: Val) -> Val:
        return self.b.fneg(x)

    def call(self, name: str, x: Val) -> Val:
        """One of LLVM's own functions."""
        return self.b.call(self.b.module.declare_intrinsic(f"llvm.{name}", [self.type]), [x])

    def exponential(self, name: str, x: Val) -> Val:
        """A function of ``compiled.exponentials``, which are those of single precision."""
        from server.engine.compiled import exponentials

        return getattr(exponentials, name)(self.b, x)

    def compare(self, sign: str, x: Val, y: Val) -> Val:
        """False where an operand is NaN, but for ``!=``."""
        return (self.b.fcmp_unordered if sign == "!=" else self.b.fcmp_ordered)(sign, x, y)


class Integer:
    """Arithmetic of integers, which wraps around, and of truth values."""

    def __init__(self, ir: Any, builder: Any, dtype: DType, numbers: Numbers) -> None:
        self.ir, self.b, self.dtype, self.numbers = ir, builder, dtype, numbers
        self.type = ir.IntType(1 if dtype is dtypes.bool_ else 8 * dtype.itemsize)
        self.is_signed = dtype not in (dtypes.uint8, dtypes.bool_)

    def constant(self, value: int) -> Val:
        """A number that the operation always has, as the type holds it."""
        return self.ir.Constant(self.type, value)

    def number(self, value: Any) -> Val:
        """A number that a program has given, which the loop gets when it runs."""
        if self.dtype is dtypes.bool_:
            return self.ir.Constant(self.type, int(bool(value)))
        return self.numbers.take(number(value, NUMPY_DTYPES[self.dtype]).tobytes(), self.type)

    def add(self, x: Val, y: Val) -> Val:
        return self.b.add(x, y)

    def sub(self, x: Val, y: Val) -> Val:
        return self.b.sub(x, y)

    def mul(self, x: Val, y: Val) -> Val:
        return self.b.mul(x, y)

    def neg(self, x: Val) -> Val:
        return self.b.neg(x)

    def compare(self, sign: str, x: Val, y: Val) -> Val:
        return (self.b.icmp_signed if self.is_signed else self.b.icmp_unsigned)(sign, x, y)


def arithmetic_of(ir: Any, builder: Any, dtype: DType, numbers: Numbers) -> Any:
    """The arithmetic of a type; half precision is computed in single precision."""
    dtype = COMPUTED_IN.get(dtype, dtype)
    return (Float if dtype in _FLOATS else Integer)(ir, builder, dtype, numbers)


def _scaled(a: Any, value: Val, factor: Any) -> Val:
    return value if factor == 1 else a.mul(value, a.number(factor))


def _larger(b: Any, a: Any, x: Val, y: Val, sign: str) -> Val:
    """As the instruction of x86: the second operand where both are equal, and NaN where one is NaN."""
    return b.select(b.or_(a.compare(sign, x, y), a.compare("!=", x, x)), x, y)


def _clip(b: Any, a: Any, x: Val, low: Any, high: Any) -> Val:
    """NumPy's ``clip``: the operand itself where it equals a bound, or is NaN."""
    for sign, bound in (("<", low), (">", high)):
        if bound is not None:
            limit = a.number(bound)
            x = b.select(a.compare(sign, x, limit), limit, x)
    return x


def _power(b: Any, n: dict[str, Any], a: Any) -> Val:
    x, exponent = n["input"], n["exponent"]
    if exponent in (3, 0.5):
        return a.mul(a.mul(x, x), x) if exponent == 3 else a.call("sqrt", x)
    base = {2: lambda: a.mul(x, x), -1: lambda: x, -2: lambda: a.mul(x, x), -0.5: lambda: a.call("sqrt", x)}[exponent]()
    return base if exponent > 0 else a.div(a.constant(1), base)


def _lerp(b: Any, n: dict[str, Any], a: Any) -> Val:
    weight, step = n["weight"], a.sub(n["end"], n["input"])
    if abs(weight) < 0.5:
        return a.add(n["input"], a.mul(step, a.number(weight)))
    return a.sub(n["end"], a.mul(step, a.number(1 - weight)))


def _tanh_slope(b: Any, n: dict[str, Any], a: Any) -> Val:
    return a.mul(n["gradient"], a.sub(a.constant(1), a.mul(n["result"], n["result"])))


def _sigmoid_slope(b: Any, n: dict[str, Any], a: Any) -> Val:
    return a.mul(n["gradient"], a.mul(a.sub(a.constant(1), n["result"]), n["result"]))


_ARITHMETIC: dict[str, Emit] = {
    "add": lambda b, n, a: a.add(n["input"], _scaled(a, n["other"], n["alpha"])),
    "sub": lambda b, n, a: a.sub(n["input"], _scaled(a, n["other"], n["alpha"])),
    "rsub": lambda b, n, a: a.sub(n["other"], _scaled(a, n["input"], n["alpha"])),
    "mul": lambda b, n, a: a.mul(n["input"], n["other"]),
    "neg": lambda b, n, a: a.neg(n["input"]),
    "square": lambda b, n, a: a.mul(n["input"], n["input"]),
}
_FLOATING: dict[str, Emit] = {
    "div": lambda b, n, a: a.div(n["input"], n["other"]),
    "abs": lambda b, n, a: a.call("fabs", n["input"]),
    "sqrt": lambda b, n, a: a.call("sqrt", n["input"]),
    "exp": lambda b, n, a: a.exponential("exp", n["input"]),
    "tanh": lambda b, n, a: a.exponential("tanh", n["input"]),
    "rsqrt": lambda b, n, a: a.div(a.constant(1), a.call("sqrt", n["input"])),
    "reciprocal": lambda b, n, a: a.div(a.constant(1), n["input"]),
    "pow": _power,
    "lerp": _lerp,
    "addcmul": lambda b, n, a: a.add(n["input"], _scaled(a, a.mul(n["tensor1"], n["tensor2"]), n["value"])),
    "addcdiv": lambda b, n, a: a.add(n["input"], _scaled(a, a.div(n["tensor1"], n["tensor2"]), n["value"])),
    "maximum": lambda b, n, a: _larger(b, a, n["input"], n["other"], ">"),
    "minimum": lambda b, n, a: _larger(b, a, n["input"], n["other"], "<"),
    "relu": lambda b, n, a: _larger(b, a, n["input"], a.constant(0), ">"),
    "clamp": lambda b, n, a: _clip(b, a, n["input"], n["min"], n["max"]),
    "clamp_min": lambda b, n, a: _clip(b, a, n["input"], n["min"], None),
    "clamp_max": lambda b, n, a: _clip(b, a, n["input"], None, n["max"]),
    "hardtanh": lambda b, n, a: _clip(b, a, n["input"], n["min_val"], n["max_val"]),
    "relu6": lambda b, n, a: _clip(b, a, n["input"], 0, 6),
    "isnan": lambda b, n, a: a.compare("!=", n["input"], n["input"]),
    "_tanh_backward": _tanh_slope,
    "_sigmoid_backward": _sigmoid_slope,
    "_relu_backward": lambda b, n, a: b.select(
        a.compare("<=", n["result"], a.constant(0)), a.constant(0), n["gradient"]
    ),
}
_BITS: dict[str, Emit] = {
    "bitwise_and": lambda b, n, a: b.and_(n["input"], n["other"]),
    "bitwise_or": lambda b, n, a: b.or_(n["input"], n["other"]),
    "bitwise_xor": lambda b, n, a: b.xor(n["input"], n["other"]),
    "bitwise_not": lambda b, n, a: b.not_(n["input"]),
}
_ANY: dict[str, Emit] = {
    "where": lambda b, n, a: b.select(n["condition"], n["input"], n["other"]),
    "masked_fill": lambda b, n, a: b.select(n["mask"], n["value"], n["input"]),
    "logical_and": lambda b, n, a: b.and_(_truth(a, n["input"]), _truth(a, n["other"])),
    "logical_or": lambda b, n, a: b.or_(_truth(a, n["input"]), _truth(a, n["other"])),
    "logical_xor": lambda b, n, a: b.xor(_truth(a, n["input"]), _truth(a, n["other"])),
    "logical_not": lambda b, n, a: b.not_(_truth(a, n["input"])),
    "eq": lambda b, n, a: a.compare("==", n["input"], n["other"]),
    "ne": lambda b, n, a: a.compare("!=", n["input"], n["other"]),
    "lt": lambda b, n, a: a.compare("<", n["input"], n["other"]),
    "le": lambda b, n, a: a.compare("<=", n["input"], n["other"]),
    "gt": lambda b, n, a: a.compare(">", n["input"], n["other"]),
    "ge": lambda b, n, a: a.compare(">=", n["input"], n["other"]),
}
ATTRIBUTES = frozenset(("alpha", "value", "exponent", "weight", "min", "max", "min_val", "max_val"))
"""Names of numbers that emitters take as Python numbers; all others are operands."""
_EXPONENTIALS = frozenset(("exp", "tanh"))
_POWERS = (2, 3, 0.5, -1, -2, -0.5)
_X86_ONLY = frozenset(("maximum", "minimum", "relu"))


def _truth(a: Any, x: Val) -> Val:
    return x if a.dtype is dtypes.bool_ else a.compare("!=", x, a.constant(0))


def emitter(compute: Compute, features: frozenset[str]) -> Emit | None:
    """What emits the instructions of an operation on these operands; None where there are none that are known to agree.

    ``features`` are the processor's: conversions of half precision need an instruction.
    """
    bound = [meta.dtype for meta in compute.bound if hasattr(meta, "dtype")]
    types = {compute.compute, compute.dtype, *bound}
    if not features or not types <= _KNOWN or (dtypes.float16 in types and "f16c" not in features):
        return None
    if is_cast(compute):
        return _cast if can_cast(compute.compute, compute.dtype) else None
    wanted = [compute.compute if p in compute.promoted else m.dtype for p, m in _metas(compute)]
    if not all([can_cast(meta.dtype, to) for (_, meta), to in zip(_metas(compute), wanted)]):
        return None
    if compute.op.name in _EXPONENTIALS and not _is_by_loops(compute):
        return None
    return _chosen(compute, COMPUTED_IN.get(compute.compute, compute.compute))


def _is_by_loops(compute: Compute) -> bool:
    """Whether a compiled loop computes the operation where it is executed alone, so that bits have to be its own."""
    meta = compute.bound[0]
    is_vector = meta.is_contiguous and meta.numel >= LEAST
    return compute.compute in _SINGLES and is_vector and kernels("elementwise") is not None


def _metas(compute: Compute) -> list[tuple[int, Any]]:
    return [(p, item) for p, item in enumerate(compute.bound) if hasattr(item, "dtype")]


def _chosen(compute: Compute, working: DType) -> Emit | None:
    name = compute.op.name
    if name in _X86_ONLY and platform.machine() not in ("x86_64", "AMD64"):
        return None
    attributes = {p.name: item for p, item in zip(compute.op.params, compute.bound) if not hasattr(item, "dtype")}
    if not all([_is_plain(item) for item in attributes.values()]) or not _agrees(name, attributes):
        return None
    if name in _ANY:
        return _ANY[name]
    if working in _FLOATS:
        return _FLOATING.get(name) or _ARITHMETIC.get(name)
    if working is dtypes.bool_:
        return _BITS.get(name)
    return _BITS.get(name) or _ARITHMETIC.get(name)


def _is_plain(item: Any) -> bool:
    if item.__class__ is int:
        return abs(item) < 1 << 62
    return item is None or item.__class__ is bool or (item.__class__ is float and math.isfinite(item))


def _agrees(name: str, attributes: dict[str, Any]) -> bool:
    """Whether attributes are such that the operation is computed in the way that is written here."""
    if name == "pow":
        return attributes.get("exponent") in _POWERS and attributes["exponent"].__class__ is not bool
    if name in ("clamp", "clamp_min", "clamp_max", "hardtanh", "lerp"):
        names = {"clamp": ("min", "max"), "hardtanh": ("min_val", "max_val"), "lerp": ("weight",)}
        return all([attribute in attributes for attribute in names.get(name, (name[6:],))])
    return True


def can_cast(source: DType, target: DType) -> bool:
    """Whether elements are converted by instructions whose result is the same everywhere."""
    if source is target or target is dtypes.bool_ or source is dtypes.bool_:
        return source in _KNOWN and target in _KNOWN and not (target is dtypes.bool_ and source in HALVES)
    if source in _INTEGERS:
        return target in _INTEGERS or target in _FLOATS
    if target in _INTEGERS:
        return False
    return not (target in HALVES and source is dtypes.float64)


def _cast(b: Any, n: dict[str, Any], a: Any) -> Val:
    return n["input"]
