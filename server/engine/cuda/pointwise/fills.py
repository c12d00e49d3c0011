"""Tensors out of nothing: constants, ranges, the unit matrix, and triangles, by the number of an element.

Ranges are counted in integers where those are wanted, else in double precision without fused steps, as on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import context, keys
from server.engine.array_library.cache_blocks import unwritten
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.cuda.runtime.geometry import LARGEST_NARROW
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op, creation

from .copying import copying
from .expressions import Chosen, Whole
from .pointwise import elementwise

_FILLS: dict[Op, str | int] = {
    creation.zeros: 0, creation.zeros_like: 0, creation.new_zeros: 0, creation.ones: 1, creation.ones_like: 1,
    creation.new_ones: 1, creation.full: "fill_value", creation.full_like: "fill_value",
    creation.new_full: "fill_value", creation.scalar_tensor: "s",
}  # fmt: skip
_UNFILLED = (
    creation.empty, creation.empty_strided, creation.empty_like, creation.new_empty, creation.new_empty_strided,
)  # fmt: skip


def fill(request: Request) -> Launch:
    """One number everywhere."""
    source = _FILLS[request.op]
    value = request.named[source] if isinstance(source, str) else source
    out = request.outs[0]
    return elementwise(request.backend, out, {"value": value}, Chosen("value"), out.dtype)


def leave(request: Request) -> Launch:
    """The memory as it is; in deterministic mode, what shows that nothing was written there."""
    filled: list[Launch] = []

    def launch(*args: Any) -> None:
        if context.current.switches.fills_memory:
            if not filled:
                out = request.outs[0]
                value = unwritten(NUMPY_DTYPES[out.dtype]).item()
                filled.append(elementwise(request.backend, out, {"value": value}, Chosen("value"), out.dtype))
            filled[0](*args)

    return launch


for _op in _FILLS:
    prepares(_op, keys.CUDA, deferrable=True)(fill)
for _op in _UNFILLED:
    prepares(_op, keys.CUDA, deferrable=True)(leave)


@prepares(creation.fill_, keys.CUDA, deferrable=True)
@prepares(creation.zero_, keys.CUDA, deferrable=True)
def fill_over(request: Request) -> Launch:
    """One number over all elements."""
    target = request.args[0]
    value = request.args[1] if request.op is creation.fill_ else 0
    return elementwise(request.backend, target, {"_": 0, "value": value}, Chosen("value"), target.dtype, target=0)


@prepares(creation.fill_tensor_, keys.CUDA, deferrable=True)
def fill_with_element(request: Request) -> Launch:
    """The one element of a 0-d tensor over all elements."""
    return copying(request.backend, request.args[0], request.args[1], at=0, index=1)


def _numbered(request: Request, text: str, numbers: dict[str, Any], compute: DType) -> Launch | None:
    """A launch that knows the row-major number of each element as ``index``."""
    out = request.outs[0]
    if not out.is_contiguous and out.ndim > 1:
        return None
    return elementwise(request.backend, out, {}, Chosen(text, numbers), compute)


@prepares(creation.arange, keys.CUDA, deferrable=True)
@prepares(creation.arange_start, keys.CUDA, deferrable=True)
def count_up(request: Request) -> Launch | None:
    """start + index * step"""
    is_plain = request.op is creation.arange
    start, step = (0, 1) if is_plain else (request.args[0], request.args[2])
    if request.outs[0].dtype.category < dtypes.FLOAT:
        return _numbered(request, "start + index * step", {"start": int(start), "step": int(step)}, dtypes.int64)
    text = "__dadd_rn(__dmul_rn((double)index, step), start)"
    return _numbered(request, text, {"start": start, "step": step}, dtypes.float64)


_FROM_BOTH_ENDS = (
    "(double)index < middle ? __dadd_rn(first, __dmul_rn(step, (double)index))"
    " : __dsub_rn(last, __dmul_rn(step, final_index - (double)index))"
)


def _spacing(request: Request) -> dict[str, float] | None:
    start, end, steps = request.args[:3]
    out = request.outs[0]
    if isinstance(start, Meta) or isinstance(end, Meta) or out.dtype.is_complex:
        return None
    is_integer = out.dtype.category < dtypes.FLOAT
    first, last = (float(int(b)) if is_integer and out.dtype is not dtypes.bool_ else float(b) for b in (start, end))
    step = (last - first) / max(steps - 1, 1)
    if out.dtype.category >= dtypes.FLOAT or out.dtype is dtypes.bool_:
        step = float(np.float64(step).astype(NUMPY_DTYPES[out.dtype]))
    return {"first": first, "last": last, "step": step, "final_index": steps - 1, "middle": max(steps // 2, 1)}


@prepares(creation.linspace, keys.CUDA, deferrable=True)
def space_evenly(request: Request) -> Launch | None:
    """Counted from both ends towards the middle."""
    numbers = _spacing(request)
    return None if numbers is None else _numbered(request, _FROM_BOTH_ENDS, numbers, dtypes.float64)


@prepares(creation.logspace, keys.CUDA, deferrable=True)
def space_powers(request: Request) -> Launch | None:
    """Powers of evenly spaced exponents."""
    numbers = _spacing(request)
    if numbers is None:
        return None
    return _numbered(request, f"pow(base, {_FROM_BOTH_ENDS})", {**numbers, "base": request.args[3]}, dtypes.float64)


@prepares(creation.eye, keys.CUDA, deferrable=True)
def unit_matrix(request: Request) -> Launch | None:
    """Ones where the number is that of a diagonal element."""
    rows, columns = request.outs[0].shape
    numbers = {"apart": columns + 1, "beyond": min(rows, columns) * (columns + 1)}
    return _numbered(request, "index < beyond && index % apart == 0", numbers, dtypes.int64)


@prepares(creation.tril, keys.CUDA, elementwise=True, deferrable=True)
@prepares(creation.triu, keys.CUDA, elementwise=True, deferrable=True)
def triangle(request: Request) -> Launch | None:
    """Elements kept by their row and column; counted in 32 bits where that is enough."""
    source, diagonal = request.args
    out = request.outs[0]
    if not out.is_contiguous or not out.numel:
        return None
    rows, columns = out.shape[-2:]
    number = "(u32)index" if out.numel <= LARGEST_NARROW else "index"
    kind = number[1:4] if out.numel <= LARGEST_NARROW else "i64"
    place = f"(i64)({number} % ({kind})columns) - (i64)({number} / ({kind})columns % ({kind})rows)"
    sign = "<=" if request.op is creation.tril else ">="
    numbers = {"rows": rows, "columns": columns, "diagonal": max(-rows - 1, min(diagonal, columns + 1))}
    chosen = Chosen(f"{place} {sign} diagonal ? input : cast<T>(0)", {n: Whole(v) for n, v in numbers.items()})
    return elementwise(request.backend, out, {"input": source}, chosen, out.dtype)
