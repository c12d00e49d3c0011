"""Element-wise arithmetic, comparisons, casts and selection on few elements, of one type each."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from server.engine.in_c.small import Loop
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op, comparison, extremes, pointwise
from telegrad_protocol.ops.layers import losses

from .layouts import KINDS, Operands, argument, is_small, result, strides_of, walk
from .registering import Factory, small

_NUMBERS = ("f32", "f64", "i64", "i32")
_FLOATS = ("f32", "f64")


def _loop(name: str, operands: Operands, out: Meta) -> Loop:
    operands.add_result(out)
    numbers = operands.numbers()
    return Loop(name, operands.places, numbers, True)


def _binary(name: str, kinds: Collection[str], result_dtype: DType | None = None, is_reversed: bool = False) -> Factory:
    """Loops of two operands; others follow that have to be 1, as ``alpha`` is."""

    def factory(request: Request) -> Loop | None:
        out, compute = request.outs[0], request.compute
        kind = KINDS.get(compute) if compute is not None else None
        is_plain = all([number == 1 for number in request.args[2:]])
        if compute is None or kind not in kinds or not is_small(out) or not is_plain:
            return None
        operands = Operands(out.shape, compute)
        numbered = list(enumerate(request.args[:2]))
        if out.dtype is not (result_dtype or compute) or not operands.add_all(
            numbered[::-1] if is_reversed else numbered
        ):
            return None
        return _loop(f"{name}_{kind}", operands, out)

    return factory


def _mixed(name: str) -> Factory:
    """Loops of tensors of two types, of which the result is single precision."""

    def factory(request: Request) -> Loop | None:
        out, given = request.outs[0], request.args[:2]
        is_plain = all([number == 1 for number in request.args[2:]])
        if (
            request.compute is not dtypes.float32
            or out.dtype is not dtypes.float32
            or not is_plain
            or not is_small(out)
        ):
            return None
        if not all([operand.__class__ is Meta for operand in given]):
            return None
        kinds = [KINDS.get(operand.dtype) for operand in given]
        operands = Operands(out.shape, out.dtype)
        are_small = all([operands.add(number, operand, operand.dtype) for number, operand in enumerate(given)])
        is_known = (*kinds,) in _MIXED or (name == "div" and kinds == ["i64", "i64"])
        return _loop(f"{name}_{kinds[0]}_{kinds[1]}", operands, out) if are_small and is_known else None

    return factory


_MIXED = frozenset((("f32", "i64"), ("i64", "f32"), ("f32", "u8"), ("u8", "f32")))


def _either(first: Factory, second: Factory) -> Factory:
    return lambda request: first(request) or second(request)


def _unary(name: str, kinds: Collection[str]) -> Factory:
    def factory(request: Request) -> Loop | None:
        out, kind = request.outs[0], KINDS.get(request.outs[0].dtype)
        operands = Operands(out.shape, out.dtype)
        if kind not in kinds or not is_small(out) or not operands.add(0, request.args[0]):
            return None
        return _loop(f"{name}_{kind}", operands, out)

    return factory


_BINARY: dict[str, tuple[Op, Collection[str]]] = {
    "add": (pointwise.add, _NUMBERS),
    "sub": (pointwise.sub, _NUMBERS),
    "mul": (pointwise.mul, _NUMBERS),
    "div": (pointwise.div, _FLOATS),
}
_LOGIC: dict[str, tuple[Op, ...]] = {
    "and": (comparison.logical_and, comparison.bitwise_and),
    "or": (comparison.logical_or, comparison.bitwise_or),
    "xor": (comparison.logical_xor, comparison.bitwise_xor),
}
_UNARY: dict[str, tuple[Op, Collection[str]]] = {
    "neg": (pointwise.neg, ("f32", "f64", "i64")),
    "abs": (pointwise.abs, ("f32", "f64")),
    "sqrt": (pointwise.sqrt, _FLOATS),
}


def _register() -> None:
    for name, (contract, kinds) in _BINARY.items():
        small(contract)(_either(_binary(name, kinds), _mixed(name)))
    small(losses._squared_error)(_binary("squared_error", _FLOATS))
    small(pointwise.rsub)(_binary("sub", _NUMBERS, is_reversed=True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        small(getattr(comparison, name))(_binary(name, (*_NUMBERS, "u8"), dtypes.bool_))
    for name, contracts in _LOGIC.items():
        small(*contracts)(_binary(name, ("u8",), dtypes.bool_))
    for name, (contract, kinds) in _UNARY.items():
        small(contract)(_unary(name, kinds))
    small(comparison.logical_not, comparison.bitwise_not)(_unary("not", ("u8",)))


_register()


@small(pointwise.pow)
def square(request: Request) -> Loop | None:
    """The second power, which is a product."""
    out, exponent = request.outs[0], request.args[1]
    kind = KINDS.get(out.dtype)
    operands = Operands(out.shape, out.dtype)
    if exponent.__class__ not in (int, float) or exponent != 2 or kind not in _FLOATS or not is_small(out):
        return None
    return _loop(f"square_{kind}", operands, out) if operands.add(0, request.args[0]) else None


@small(extremes.clamp)
def clamp(request: Request) -> Loop | None:
    """Limits that are numbers; one that is left out is the least or the largest number there is."""
    out, (input, least, most) = request.outs[0], request.args[:3]
    kind = KINDS.get(out.dtype)
    if kind not in ("f32", "f64", "i64") or request.compute is not out.dtype or not is_small(out):
        return None
    ends = (-math.inf, math.inf) if kind != "i64" else (-(1 << 63), (1 << 63) - 1)
    limits = [end if limit is None else limit for limit, end in zip((least, most), ends)]
    operands = Operands(out.shape, out.dtype)
    if any([limit.__class__ is Meta or limit != limit for limit in limits]):
        return None
    taken = operands.add_all([(0, input), (1, limits[0]), (2, limits[1])])
    return _loop(f"clamp_{kind}", operands, out) if taken else None


def chosen(
    out: Meta, mask: tuple[int, Any], first: tuple[int, Any], second: tuple[int, Any], item: int = -1
) -> Loop | None:  # fmt: skip
    """One argument where a mask is true, else another one; the mask may be an item of a list."""
    size = out.dtype.itemsize
    operands = Operands(out.shape, out.dtype)
    if size not in (1, 4, 8) or not is_small(out) or mask[1].__class__ is not Meta:
        return None
    if not operands.add(*mask, dtypes.bool_, item) or not operands.add_all((first, second)):
        return None
    return _loop(f"where_{size}", operands, out)


@small(comparison.where)
def where(request: Request) -> Loop | None:
    """The second operand where the first is true, else the third."""
    condition, input, other = request.args
    return chosen(request.outs[0], (0, condition), (1, input), (2, other))


@small(comparison.masked_fill)
def masked_fill(request: Request) -> Loop | None:
    """A number where the mask is true."""
    input, mask, value = request.args
    return chosen(request.outs[0], (1, mask), (2, value), (0, input))


_CASTS = frozenset(
    (("u8", "f32"), ("u8", "f64"), ("u8", "i64"), ("i64", "f32"), ("i64", "f64"), ("i32", "i64"), ("i32", "f32"),
     ("f32", "f64"), ("f64", "f32"), ("i64", "u8"), ("f32", "u8"))
)  # fmt: skip


@small(pointwise._to_copy)
def cast(request: Request) -> Loop | None:
    """Elements converted to another type."""
    input, out = request.args[0], request.outs[0]
    kinds = KINDS.get(input.dtype), KINDS.get(out.dtype)
    if kinds not in _CASTS or not is_small(out) or input.shape != out.shape:
        return None
    numbers = walk(out.shape, strides_of(input, out.shape), strides_of(out, out.shape))
    return Loop(f"{kinds[0]}_to_{kinds[1]}", (argument(0, input), result(0, out)), numbers, True)
