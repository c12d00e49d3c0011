"""Recurrent layers on top of each other: one call of the device's library where it has one, and else layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import composite, implements
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import rnn as ops


class Stack(NamedTuple):
    """What a library must know to plan layers: sizes, and how many sequences have an element at each step."""

    dtype: DType
    mode: str
    features: int
    hidden: int
    outputs: int
    num_layers: int
    bidirectional: bool
    has_biases: bool
    steps: Size
    allow_tf32: bool


class Fused(NamedTuple):
    """How a library computes a stack: the order in which it has the weights, and what its backward pass reads."""

    order: tuple[int, ...]
    reserve_bytes: int


_FLAT_WEIGHTS = OPERATORS["_flat_weights"]
_CUDNN_RNN = OPERATORS["_cudnn_rnn"]
Planner = Callable[[Any, Stack], "Fused | None"]
PLANNERS: dict[int, Planner] = {}
"""By backend key, what plans a stack in one call of a library, or returns None where the library has none."""


@lru_cache(maxsize=1 << 10)
def _planned(
    backend: Any, input: Meta, hx: Meta, hidden: int, mode: str, num_layers: int, bidirectional: bool,
    has_biases: bool, batch_sizes: Size, allow_tf32: bool,
) -> Fused | None:  # fmt: skip
    steps = ops.steps_of(input.shape[0], hx.shape[1], batch_sizes)
    stack = Stack(
        input.dtype, mode, input.shape[1], hidden, hx.shape[2], num_layers, bidirectional, has_biases, steps, allow_tf32
    )  # fmt: skip
    return PLANNERS[backend.key](backend, stack)


def _fused(input, hx, cx, weights, mode, num_layers, bidirectional, has_biases, batch_sizes):
    """The stack by one call of the device's library; None where there is none."""
    current = context.current
    if input.backend.key not in PLANNERS or not current.cudnn.enabled:
        return None
    hidden = weights[1].shape[0] // ops.GATES[mode]
    whole = (num_layers, bidirectional, has_biases, batch_sizes, current.cudnn.allow_tf32)
    plan = _planned(input.backend, input.meta, hx.meta, hidden, mode, *whole)
    if plan is None:
        return None
    flat = dispatch(_FLAT_WEIGHTS, (tuple(weights), plan.order))
    input, hx, cx = _row_major(input), _row_major(hx), cx and _row_major(cx)
    records = current.is_recording and any([requires_grad(v) for v in (input, hx, cx, flat) if v is not None])
    return dispatch(_CUDNN_RNN, (input, hx, cx, flat, mode, hidden, *whole, plan.reserve_bytes if records else 0))[:3]


def _row_major(value):
    return value if value.meta.is_contiguous else F.contiguous(value)


def _unflattened(grad, tensors_meta, order):
    """The parts of a vector's gradient, as tensors."""
    parts = F.split(grad, tuple([tensors_meta[place].numel for place in order]))
    by_place = dict(zip(order, parts, strict=True))
    return [F.view(by_place[place], meta.shape) for place, meta in enumerate(tensors_meta)]


@implements(ops._flat_weights, movement=True, tensors=_unflattened)
def _flat_weights(xp, tensors, order, *, out):
    xp.concatenate([tensors[place].ravel() for place in order], out=out)


def _directions(input, hx, cx, weights, mode, has_biases, batch_sizes):
    """One layer, a direction after the other."""
    ended = [
        F._rnn_layer(
            input, F.select(hx, 0, place), None if cx is None else F.select(cx, 0, place), *given, mode, place == 1,
            batch_sizes,
        )
        for place, given in enumerate(ops.layers_of(weights, hx.shape[0], has_biases))
    ]  # fmt: skip
    outputs, states, cells = zip(*ended, strict=True)
    output = outputs[0] if len(outputs) == 1 else F.cat(outputs, 1)
    return output, F.stack(states), cells[0] if cx is None else F.stack(cells)


@composite(ops._rnn)
def _rnn(input, hx, cx, weights, mode, num_layers, bidirectional, has_biases, dropout, batch_sizes):
    whole = (bidirectional, has_biases, batch_sizes)
    if not dropout or num_layers == 1:
        ended = _fused(input, hx, cx, weights, mode, num_layers, *whole)
        if ended is not None:
            return ended
    directions, each = 2 if bidirectional else 1, len(weights) // num_layers
    states, cells = [], []
    for layer in range(num_layers):
        h = F.narrow(hx, 0, layer * directions, directions)
        c = None if cx is None else F.narrow(cx, 0, layer * directions, directions)
        given = weights[layer * each : (layer + 1) * each]
        ended = _fused(input, h, c, given, mode, 1, *whole) or _directions(
            input, h, c, given, mode, has_biases, batch_sizes
        )
        input, state, cell = ended
        states.append(state)
        cells.append(cell)
        if dropout and layer < num_layers - 1:
            input = F.dropout(input, dropout, True)
    return input, F.cat(states, 0), cells[0] if cx is None else F.cat(cells, 0)


def _gradients(
    grad_output, grad_h_n, grad_c_n, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
    bidirectional, has_biases, batch_sizes, allow_tf32,
):  # fmt: skip
    return F._cudnn_rnn_backward(
        _row_major(grad_output), _row_major(grad_h_n), _row_major(grad_c_n), input, hx, cx, weight, output,
        reserve, mode, hidden_size, num_layers, bidirectional, has_biases, batch_sizes, allow_tf32,
    )  # fmt: skip


def _gradient(place):
    def formula(
        grad_output, grad_h_n, grad_c_n, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
        bidirectional, has_biases, batch_sizes, allow_tf32,
    ):  # fmt: skip
        return _gradients(
            grad_output, grad_h_n, grad_c_n, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
            bidirectional, has_biases, batch_sizes, allow_tf32,
        )[place]  # fmt: skip

    return formula


def _together(
    grad_output, grad_h_n, grad_c_n, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
    bidirectional, has_biases, batch_sizes, allow_tf32, wanted,
):  # fmt: skip
    gradients = _gradients(
        grad_output, grad_h_n, grad_c_n, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
        bidirectional, has_biases, batch_sizes, allow_tf32,
    )  # fmt: skip
    return tuple([g if is_wanted else None for g, is_wanted in zip(gradients, wanted, strict=True)])


def _no_kernel(what: str) -> NotSupportedError:
    return NotSupportedError(f"a recurrent layer: cuDNN computes no {what} of these operands")


@implements(
    ops._cudnn_rnn, together=_together,
    input=_gradient(0), hx=_gradient(1), cx=_gradient(2), weight=_gradient(3),
)  # fmt: skip
def _cudnn_rnn(
    xp, input, hx, cx, weight, mode, hidden_size, num_layers, bidirectional, has_biases, batch_sizes, allow_tf32,
    reserve_bytes, *,
    out,
):  # fmt: skip
    raise _no_kernel("result")


def _refuse(grads) -> NoReturn:
    raise NotSupportedError(
        "a recurrent layer has no second derivative on a GPU, where cuDNN computes it; set "
        "telegrad.backends.cudnn.enabled = False, or write it with LSTMCell, GRUCell or RNNCell"
    )


@implements(
    ops._cudnn_rnn_backward, grad_output=_refuse, grad_h=_refuse, grad_c=_refuse, input=_refuse, hx=_refuse, cx=_refuse,
    weight=_refuse,
)  # fmt: skip
def _cudnn_rnn_backward(
    xp, grad_output, grad_h, grad_c, input, hx, cx, weight, output, reserve, mode, hidden_size, num_layers,
    bidirectional, has_biases, batch_sizes, allow_tf32, *, out,
):  # fmt: skip
    raise _no_kernel("gradient")
