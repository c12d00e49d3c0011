"""Recurrent layers: on the host one kernel for all steps of a sequence, and one for all its gradients.

On a GPU a layer is a composition of operations here, for where cuDNN does not compute the whole stack: see
``rnn_stack``.
"""

from __future__ import annotations

from itertools import accumulate

from server.engine import context, keys
from server.engine import functional as F
from server.engine.device import cancellation
from server.engine.registry import composite, implements
from telegrad_protocol.ops.layers import rnn as ops
from telegrad_protocol.ops.layers.rnn import steps_of

from .rnn_cells import CELLS, GRADIENTS
from .rnn_second import recorded_gradients


@composite(ops._rnn_layer)
def _rnn_layer(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, reverse, batch_sizes):
    if input.backend.key == keys.CPU:
        return F._rnn_sequence(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, reverse, batch_sizes)[:3]
    return _composed(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, reverse, batch_sizes)


def _spans(rows, sequences, batch_sizes, reverse):
    """The first row and the number of rows of each step, in the order in which the layer takes them."""
    sizes = steps_of(rows, sequences, batch_sizes)
    spans = list(zip(accumulate(sizes, initial=0), sizes, strict=False))
    return spans[::-1] if reverse else spans


def _linear(input, weight, bias):
    return F.mm(input, F.t(weight)) if bias is None else F.addmm(bias, input, F.t(weight))


def _composed(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, reverse, batch_sizes):
    """A layer made of differentiable operations."""
    by_input = _linear(input, w_ih, b_ih)
    cell = _COMPOSED[mode]
    outputs = {}
    for start, count in _spans(input.shape[0], hx.shape[0], batch_sizes, reverse):
        if cancellation.requested:
            cancellation.stop()
        h = _rows(hx, count)
        c = None if cx is None else _rows(cx, count)
        new_h, new_c = cell(F.narrow(by_input, 0, start, count), _linear(h, w_hh, b_hh), h, c)
        new_h = new_h if w_hr is None else F.mm(new_h, F.t(w_hr))
        hx = _with_rows(hx, new_h)
        cx = None if cx is None else _with_rows(cx, new_c)
        outputs[start] = new_h
    output = F.cat([outputs[start] for start in sorted(outputs)], 0)
    cells = F.zeros((0,), dtype=hx.dtype, device=hx.device) if cx is None else cx
    return output, hx, cells


def _rows(state, count):
    return state if count == state.shape[0] else F.narrow(state, 0, 0, count)


def _with_rows(state, first):
    """``state`` with other first rows."""
    count = first.shape[0]
    return first if count == state.shape[0] else F.cat([first, F.narrow(state, 0, count, state.shape[0] - count)], 0)


def _lstm(by_input, by_state, h, c):
    i, f, g, o = F.chunk(F.add(by_input, by_state), 4, 1)
    c = F.add(F.mul(F.sigmoid(f), c), F.mul(F.sigmoid(i), F.tanh(g)))
    return F.mul(F.sigmoid(o), F.tanh(c)), c


def _gru(by_input, by_state, h, c):
    (r, z, n), (hr, hz, hn) = F.chunk(by_input, 3, 1), F.chunk(by_state, 3, 1)
    new = F.tanh(F.add(n, F.mul(F.sigmoid(F.add(r, hr)), hn)))
    return F.add(new, F.mul(F.sigmoid(F.add(z, hz)), F.sub(h, new))), None


_COMPOSED = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda by_input, by_state, h, c: (F.tanh(F.add(by_input, by_state)), None),
    "RNN_RELU": lambda by_input, by_state, h, c: (F.relu(F.add(by_input, by_state)), None),
}


def _all_gradients(
    grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
    batch_sizes,
):  # fmt: skip
    """The gradients of all inputs; in a pass that is recorded, as results of differentiable operations."""
    if context.current.is_recording:
        operands = (input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr)
        grads = (grad_output, grad_h_n, grad_c_n)
        return recorded_gradients(_composed, operands, (mode, reverse, batch_sizes), grads)
    return F._rnn_sequence_backward(
        grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
        batch_sizes,
    )  # fmt: skip


def _gradient(number):
    """The formula of one input's gradient."""

    def formula(
        grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
        batch_sizes,
    ):  # fmt: skip
        return _all_gradients(
            grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
            batch_sizes,
        )[number]  # fmt: skip

    return formula


def _gradients(
    grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
    batch_sizes, wanted,
):  # fmt: skip
    gradients = _all_gradients(
        grad_output, grad_h_n, grad_c_n, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
        batch_sizes,
    )  # fmt: skip
    return tuple([g if is_wanted else None for g, is_wanted in zip(gradients, wanted, strict=True)])


_INPUTS = ("input", "hx", "cx", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr")


@implements(ops._rnn_sequence, together=_gradients, **{name: _gradient(number) for number, name in enumerate(_INPUTS)})
def _rnn_sequence(xp, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, reverse, batch_sizes, *, out):
    output, h, c, kept = out
    h[...] = hx
    if cx is not None:
        c[...] = cx
    by_input = input @ w_ih.T
    if b_ih is not None:
        by_input += b_ih
    step = CELLS[mode]
    weights = xp.ascontiguousarray(w_hh.T)
    for start, count in _spans(input.shape[0], hx.shape[0], batch_sizes, reverse):
        if cancellation.requested:
            cancellation.stop()
        rows = slice(start, start + count)
        by_state = h[:count] @ weights
        if b_hh is not None:
            by_state += b_hh
        new = step(xp, by_input[rows], by_state, h[:count], c[:count], kept[rows])
        h[:count] = new if w_hr is None else new @ w_hr.T
        output[rows] = h[:count]


@implements(ops._rnn_sequence_backward)
def _rnn_sequence_backward(
    xp, grad_output, grad_h, grad_c, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, output, kept, mode, reverse,
    batch_sizes, *, out,
):  # fmt: skip
    by_input, by_hx, by_cx, by_w_ih, by_w_hh, by_b_ih, by_b_hh, by_w_hr = out
    spans = _spans(input.shape[0], hx.shape[0], batch_sizes, reverse)
    before, cells = _states_before(xp, hx, cx, output, kept, spans)
    hidden = w_ih.shape[0] // ops.GATES[mode]
    gates_i = xp.empty((input.shape[0], w_ih.shape[0]), input.dtype)
    gates_h = gates_i if mode != "GRU" else xp.empty_like(gates_i)
    raw = None if w_hr is None else xp.empty((input.shape[0], hidden), input.dtype)
    by_hx[...] = grad_h
    by_c = by_cx if cx is not None else None
    if by_c is not None:
        by_c[...] = grad_c
    step = GRADIENTS[mode]
    projected = []
    for start, count in reversed(spans):
        if cancellation.requested:
            cancellation.stop()
        rows = slice(start, start + count)
        total = by_hx[:count] + grad_output[rows]
        if w_hr is not None:
            projected.append((rows, total))
            total = total @ w_hr
        cell = None if cells is None else cells[rows]
        by_cell = None if by_c is None else by_c[:count]
        direct = step(
            xp, total, output[rows], before[rows], cell, kept[rows], by_cell, gates_i[rows], gates_h[rows],
            None if raw is None else raw[rows],
        )  # fmt: skip
        back = gates_h[rows] @ w_hh
        by_hx[:count] = back if direct is None else back + direct
    xp.matmul(gates_i, w_ih, out=by_input)
    xp.matmul(gates_i.T, input, out=by_w_ih)
    xp.matmul(gates_h.T, before, out=by_w_hh)
    if b_ih is not None:
        by_b_ih[...] = gates_i.sum(axis=0)
        by_b_hh[...] = gates_h.sum(axis=0)
    if w_hr is not None:
        by_w_hr[...] = 0
        for rows, total in projected:
            by_w_hr += total.T @ raw[rows]


def _states_before(xp, hx, cx, output, kept, spans):
    """The states of outputs, and of cells if there are any, with which each step began, row by row."""
    before = xp.empty_like(output)
    state = hx.copy()
    hidden = 0 if cx is None else cx.shape[1]
    cells = None if cx is None else xp.empty((output.shape[0], hidden), output.dtype)
    cell = None if cx is None else cx.copy()
    for start, count in spans:
        rows = slice(start, start + count)
        before[rows] = state[:count]
        state[:count] = output[rows]
        if cell is not None:
            cells[rows] = cell[:count]
            cell[:count] = kept[rows, 4 * hidden :]
    return before, cells
