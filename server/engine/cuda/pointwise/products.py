"""Products of vectors element by element: outer products that are added, and cross products."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.layout import broadcast_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import views
from telegrad_protocol.ops.linear_algebra import linalg

from .expressions import Chosen
from .pointwise import computing, generated, launcher

_ORDER = (0, 1, 0, 1)
"""Which operand each factor of a difference of two products is."""


@prepares(linalg.addr, keys.CUDA, deferrable=True)
def addr(request: Request) -> Launch | None:
    """``beta * input + alpha * vec1 * vec2`` over rows and columns; an input that counts for nothing is not read."""
    input, vec1, vec2, beta, alpha = request.args
    out = request.outs[0]
    if out.dtype is dtypes.bool_:
        return None
    rows = vec1.view(out.shape, (*vec1.strides, 0))
    columns = vec2.view(out.shape, (0, *vec2.strides))
    scaled = "" if alpha == 1 else "alpha * "
    added = "" if beta == 0 else " + input" if beta == 1 else " + beta * input"
    operands = {"input": input, "vec1": rows, "vec2": columns, "beta": beta, "alpha": alpha}
    expression = Chosen(f"{scaled}(T)(vec1 * vec2){added}")
    fire, names, offsets = generated(out, operands, expression, computing(out.dtype))
    order = list(operands)
    return launcher(fire, request.backend, [order.index(name) for name in names], offsets, None)


@prepares(linalg.cross, keys.CUDA, deferrable=True)
def cross(request: Request) -> Launch:
    """A launch for each of the three elements: the difference of two products, each rounded for itself."""
    input, other, dim = request.args
    out = request.outs[0]
    axis = linalg.cross_dim(input, other, dim)[1]
    left, right = _over(input, out), _over(other, out)
    launches = [_difference(request.backend, out, left, right, axis, number) for number in range(3)]

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        for one in launches:
            one(args, outs)

    return launch


def _over(operand: Meta, out: Meta) -> Meta:
    return operand.view(out.shape, broadcast_strides(operand.shape, operand.strides, out.shape))


def _difference(backend: Backend, out: Meta, left: Meta, right: Meta, axis: int, number: int) -> Launch:
    """Element ``number`` of cross products: left by right of the next two elements, minus the other way around."""
    first, second = (number + 1) % 3, (number + 2) % 3
    factors = {
        name: views.select.rule(factor, axis, at)
        for name, factor, at in zip("abcd", (left, right, left, right), (first, second, second, first), strict=True)
    }
    target = views.select.rule(out, axis, number)
    fire, _, offsets = generated(target, factors, Chosen("rare_difference(a, b, c, d)"), computing(out.dtype))
    return launcher(fire, backend, list(_ORDER), offsets, None)
