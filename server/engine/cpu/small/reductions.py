"""Sums, means, norms, variances, extremes and tests of few elements, over any dimensions, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine.in_c.small import Loop
from server.engine.operators import Request
from telegrad_protocol import dtypes
from telegrad_protocol.layout import wrap_dim, wrap_dims
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op, reduce, scans, spread

from .layouts import KINDS, argument, bits_of, is_small, result, strides_of, walk
from .registering import Factory, small


def _reduced(input: Meta, dim: Any) -> tuple[int, ...]:
    """The reduced dimensions; no dimension stands for all."""
    listed = (dim,) if isinstance(dim, int) else dim
    return wrap_dims("reduce", listed, input.ndim) if listed and input.ndim else tuple(range(input.ndim))


def _loop(name: str, input: Meta, dim: Any, outs: Sequence[Meta], rest: Sequence[int] = ()) -> Loop | None:
    if not is_small(input, *outs) or not all([out.is_contiguous for out in outs]):
        return None
    reduced, strides = _reduced(input, dim), strides_of(input, input.shape)
    kept = [d for d in range(input.ndim) if d not in reduced]
    numbers = [
        *walk([input.shape[d] for d in kept], [strides[d] for d in kept]),
        *walk([input.shape[d] for d in reduced], [strides[d] for d in reduced]),
        *rest,
    ]
    return Loop(name, (argument(0, input), *[result(i, out) for i, out in enumerate(outs)]), numbers)


def _of_types(name: str, types: dict[str, str], keyword: str = "dim") -> Factory:
    """Reductions of a type to a type, both by what loops call them."""

    def factory(request: Request) -> Loop | None:
        input, out = request.args[0], request.outs[0]
        kind = KINDS.get(input.dtype)
        if kind is None or types.get(kind) != KINDS.get(out.dtype):
            return None
        dim = request.named.get(keyword)
        return None if dim == () and out.shape == input.shape else _loop(f"{name}_{kind}", input, dim, request.outs)

    return factory


_SAME = {kind: kind for kind in ("f32", "f64", "i64", "u8")}
_TO_INDEX = dict.fromkeys(_SAME, "i64")
_TABLE: dict[str, tuple[tuple[Op, ...], dict[str, str]]] = {
    "sum": ((reduce.sum,), {"f32": "f32", "f64": "f64", "i64": "i64", "u8": "i64"}),
    "mean": ((reduce.mean,), {"f32": "f32", "f64": "f64"}),
    "amax": ((reduce.amax, reduce.max), _SAME),
    "amin": ((reduce.amin, reduce.min), _SAME),
    "argmax": ((reduce.argmax,), _TO_INDEX),
    "argmin": ((reduce.argmin,), _TO_INDEX),
    "max": ((reduce.max_dim,), _SAME),
    "min": ((reduce.min_dim,), _SAME),
    "any": ((reduce.any,), {"u8": "u8"}),
    "all": ((reduce.all,), {"u8": "u8"}),
}
for _name, (_contracts, _types) in _TABLE.items():
    small(*_contracts)(_of_types(_name, _types))


@small(spread.norm)
def norm(request: Request) -> Loop | None:
    """The square root of the sum of squares."""
    input, p, dim = request.args[:3]
    is_plain = p is None or (p.__class__ in (int, float) and p == 2)
    if not is_plain or input.dtype is not dtypes.float32 or request.outs[0].dtype is not dtypes.float32:
        return None
    return _loop("norm_f32", input, dim, request.outs)


def _spread(name: str) -> Factory:
    def factory(request: Request) -> Loop | None:
        named = request.named
        input, dim, correction = request.args[0], named["dim"], named["correction"]
        correction = 1 if correction is None else correction
        is_single = input.dtype is dtypes.float32 and request.outs[0].dtype is dtypes.float32
        if not is_single or correction.__class__ not in (int, float) or not request.outs[0].numel:
            return None
        freedom = input.numel // request.outs[0].numel - correction
        divisor = bits_of(freedom if freedom > 0 else 0, dtypes.float64)
        return _loop(name, input, dim, request.outs, [divisor])

    return factory


small(spread.var)(_spread("var_f32"))
small(spread.std)(_spread("std_f32"))


@small(scans.cumsum)
def cumsum(request: Request) -> Loop | None:
    """Running sums along one dimension."""
    input, out = request.args[0], request.outs[0]
    kind = KINDS.get(input.dtype)
    if kind not in ("f32", "i64") or input.dtype is not out.dtype or not is_small(input, out) or not input.ndim:
        return None
    dim = wrap_dim("cumsum", request.args[1], input.ndim)
    rows = [*input.shape[:dim], 1, *input.shape[dim + 1 :]]
    strides = strides_of(input, input.shape), strides_of(out, out.shape)
    numbers = [*walk(rows, *strides), input.shape[dim], strides[0][dim], strides[1][dim]]
    return Loop(f"cumsum_{kind}", (argument(0, input), result(0, out)), numbers)
