"""Reductions as prepared kernels: which state each operation keeps, over which dimensions, into which results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine import keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cuda.runtime.launch import nothing
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import reduce as ops
from telegrad_protocol.ops import spread, views
from telegrad_protocol.ops.contract import Op
from telegrad_protocol.ops.linear_algebra import linalg

from .launch import State, reduction
from .layout import walk

BYTES = {"float": 4, "double": 8, "i32": 4, "i64": 8, "c64": 8, "c128": 16}
Chooser = Callable[[Request, dict[str, Any], int], "State | None"]
"""Gives the state of an operation on its arguments by name; the number is how many elements make a result."""


def computing(dtype: DType) -> DType:
    """The type in which numbers of ``dtype`` are added."""
    if dtype in HALVES:
        return dtypes.float32
    return dtype if dtype.is_differentiable else dtypes.int64


def comparing(dtype: DType) -> str:
    """The C++ type in which elements of ``dtype`` are compared."""
    if dtype.is_floating_point:
        return CTYPES[computing(dtype)]
    return "i64" if dtype is dtypes.int64 else "i32"


def dims_of(input: Meta, dim: Any) -> tuple[int, ...]:
    """The reduced dimensions: all where ``dim`` is None or empty."""
    listed = (dim,) if isinstance(dim, int) else dim
    return wrap_dims("reduce", listed, input.ndim) if listed and input.ndim else tuple(range(input.ndim))


def _file(contract: Op, choose: Chooser, is_ordered: bool = False, keeps_undivided: bool = False) -> None:
    """File the prepared kernels of a reduction, which with ``keeps_undivided`` is none where ``dim`` is empty."""

    @prepares(contract, keys.CUDA, deferrable=True)
    def prepare(request: Request) -> Launch | None:
        named = request.named
        if keeps_undivided and named["dim"] == ():
            return None
        return _reducing(request, named, choose, is_ordered)


def _reducing(request: Request, named: dict[str, Any], choose: Chooser, is_ordered: bool = False) -> Launch | None:
    """The launch that reduces the operand ``input`` of ``named`` over ``dim``; none where there is no way."""
    input: Meta = named["input"]
    walked = walk(input, dims_of(input, named.get("dim")), request.outs, is_ordered)
    state = choose(request, named, walked.length)
    if state is None:
        return None
    if not walked.results:
        return nothing
    first, second = request.outs[0].dtype.itemsize, request.outs[-1].dtype.itemsize
    return reduction(request.backend, walked, state, input.dtype.itemsize, (first, second))


def _accumulated(name: str) -> Chooser:
    def choose(request: Request, named: dict[str, Any], count: int) -> State | None:
        element, result = named["input"].dtype, request.outs[0].dtype
        if result is dtypes.bool_:
            is_all = "true" if name == "Product" else "false"
            return State(f"AnyAll<{CTYPES[element]}, bool, {is_all}>", 4)
        kept = CTYPES[computing(result)]
        return State(f"{name}<{CTYPES[element]}, {CTYPES[result]}, {kept}>", BYTES[kept], float(count))

    return choose


def _truth(is_all: str) -> Chooser:
    def choose(request: Request, named: dict[str, Any], count: int) -> State:
        return State(f"AnyAll<{CTYPES[named['input'].dtype]}, {CTYPES[request.outs[0].dtype]}, {is_all}>", 4)

    return choose


def _extreme(template: str, *flags: str, has_place: bool = False) -> Chooser:
    def choose(request: Request, named: dict[str, Any], count: int) -> State:
        kept = comparing(named["input"].dtype)
        text = ", ".join((CTYPES[named["input"].dtype], kept, *flags))
        return State(f"{template}<{text}>", BYTES[kept] * 2 if not has_place else 16)

    return choose


def _count_nonzero(request: Request, named: dict[str, Any], count: int) -> State:
    return State(f"NonZero<{CTYPES[named['input'].dtype]}, i64>", 8)


def _logsumexp(request: Request, named: dict[str, Any], count: int) -> State | None:
    result = request.outs[0].dtype
    if result.is_complex:
        return None
    kept = CTYPES[computing(result)]
    return State(f"LogSumExp<{CTYPES[named['input'].dtype]}, {CTYPES[result]}, {kept}>", 2 * BYTES[kept])


def _spread(root: str) -> Chooser:
    def choose(request: Request, named: dict[str, Any], count: int) -> State:
        element, result = named["input"].dtype, request.outs[0].dtype
        mean, real = (CTYPES[computing(dtype)] for dtype in (element, element.to_real()))
        correction = 1 if named["correction"] is None else named["correction"]
        left = max(float(count - correction), 0.0)
        text = f"Variance<{CTYPES[element]}, {CTYPES[result]}, {mean}, {real}, {root}>"
        return State(text, BYTES[mean] + 2 * BYTES[real], left)

    return choose


def _norm(request: Request, named: dict[str, Any], count: int) -> State:
    element, result = named["input"].dtype, request.outs[0].dtype
    p = 2.0 if named["p"] is None else float(named["p"])
    converted = element
    if named["dtype"] is not None:
        converted = result.to_complex() if element.is_complex else result
    kept = CTYPES[computing(converted.to_real())]
    types = f"{CTYPES[element]}, {CTYPES[converted]}, {CTYPES[result]}, {kept}"
    if p == 0:
        return State(f"NonZero<{CTYPES[element]}, {CTYPES[result]}>", 8)
    if abs(p) == float("inf"):
        return State(f"NormInf<{types}, {'true' if p > 0 else 'false'}>", BYTES[kept])
    name = {1.0: "Norm1", 2.0: "Norm2"}.get(p, "NormP")
    return State(f"{name}<{types}>", BYTES[kept], p)


_file(ops.sum, _accumulated("Sum"))
_file(ops.mean, _accumulated("Mean"))
_file(ops.nansum, _accumulated("NanSum"))
_file(ops.prod, _accumulated("Product"))
_file(ops.any, _truth("false"), keeps_undivided=True)
_file(ops.all, _truth("true"), keeps_undivided=True)
_file(ops.count_nonzero, _count_nonzero)
for _contract, _largest in ((ops.max, "true"), (ops.amax, "true"), (ops.min, "false"), (ops.amin, "false")):
    _file(_contract, _extreme("Extreme", _largest))
for _contract, _largest in ((ops.max_dim, "true"), (ops.min_dim, "false")):
    _file(_contract, _extreme("ExtremeWithIndex", _largest, has_place=True), is_ordered=True)
for _contract, _largest in ((ops.argmax, "true"), (ops.argmin, "false")):
    _file(_contract, _extreme("ArgExtreme", _largest, has_place=True), is_ordered=True)
_file(ops.aminmax, _extreme("Extremes"))
_file(ops.logsumexp, _logsumexp)
_file(spread.var, _spread("false"))
_file(spread.std, _spread("true"))
_file(spread.norm, _norm)


@prepares(linalg.trace, keys.CUDA, deferrable=True)
def trace(request: Request) -> Launch | None:
    """The sum of a view of the diagonal."""
    return _reducing(request, {"input": views.diagonal.rule(request.args[0])}, _accumulated("Sum"))
