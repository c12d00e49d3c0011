"""Contracts of recurrent layers: one operation for one layer in one direction over whole sequences.

Sequences are packed: the rows of ``input`` are all first elements, then all second ones, and so on; ``batch_sizes``
says how many sequences have each. Without it all sequences have one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from telegrad_protocol.dtypes import float32, uint8
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""How many times ``hidden_size`` rows the weights of a kind of layer have."""
KEPT = {"LSTM": 5, "GRU": 4, "RNN_TANH": 0, "RNN_RELU": 0}
"""How many times ``hidden_size`` numbers backward needs for every element of a sequence, beside the output."""


def steps_of(rows: int, sequences: int, batch_sizes: Size) -> tuple[int, ...]:
    """Return how many sequences have an element at each step."""
    return batch_sizes or (sequences,) * (rows // sequences)


def _check_sequence(
    name: str, input: Meta, hx: Meta, cx: Meta | None, w_ih: Meta, w_hh: Meta, b_ih: Meta | None, b_hh: Meta | None,
    w_hr: Meta | None, mode: str, batch_sizes: Size,
) -> int:  # fmt: skip
    """Refuse what is no layer and its input; return the hidden size."""
    if mode not in GATES:
        raise ArgumentError(f"{name}: mode must be one of {', '.join(GATES)}, got {mode!r}")
    if input.ndim != 2 or hx.ndim != 2 or w_ih.ndim != 2 or w_hh.ndim != 2 or not hx.shape[0]:
        raise ShapeError(f"{name}: expected matrices, got {input}, {hx}, {w_ih} and {w_hh}")
    operands = [m for m in (hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr) if m is not None]
    if not input.dtype.is_floating_point or any(m.dtype is not input.dtype for m in operands):
        raise DTypeError(f"{name}: expected operands of one floating-point type, got {input} and {operands}")
    rows, outputs = w_ih.shape[0], hx.shape[1]
    hidden = rows // GATES[mode]
    if w_hr is not None and mode != "LSTM":
        raise ArgumentError(f"{name}: only an LSTM projects its output, not {mode}")
    if w_ih.shape != (GATES[mode] * hidden, input.shape[1]) or w_hh.shape != (rows, outputs):
        raise ShapeError(f"{name}: weights {w_ih} and {w_hh} do not go with input {input} and state {hx}")
    if any(bias is not None and bias.shape != (rows,) for bias in (b_ih, b_hh)) or (b_ih is None) != (b_hh is None):
        raise ShapeError(f"{name}: biases must be two of shape [{rows}] or none, got {b_ih} and {b_hh}")
    if (cx is None) is (mode == "LSTM") or (cx is not None and cx.shape != (hx.shape[0], hidden)):
        raise ShapeError(f"{name}: the state of cells is {cx}, and the layer has {hidden} cells")
    if (outputs != hidden and (w_hr is None or mode != "LSTM")) or (
        w_hr is not None and w_hr.shape != (outputs, hidden)
    ):
        raise ShapeError(f"{name}: state {hx} is not of {hidden} cells, nor projected by {w_hr}")
    _check_batch_sizes(name, input, hx, batch_sizes)
    return hidden


def _check_batch_sizes(name: str, input: Meta, hx: Meta, batch_sizes: Size) -> None:
    rows, sequences = input.shape[0], hx.shape[0]
    if not batch_sizes:
        if not rows or rows % sequences:
            raise ShapeError(f"{name}: the rows of {input} are not those of {sequences} sequences of one length")
        return
    falls = all(a >= b for a, b in pairwise(batch_sizes))
    if batch_sizes[0] != sequences or batch_sizes[-1] < 1 or not falls or sum(batch_sizes) != rows:
        raise ArgumentError(
            f"{name}: batch_sizes must fall from {sequences}, the sequences of {hx}, and sum to {rows}, the rows of "
            f"{input}, got {list(batch_sizes)}"
        )


@op(out=False, method=False, returns=("output", "h_n", "c_n"))
def _rnn_layer(
    input: Meta, hx: Meta, cx: Meta | None, w_ih: Meta, w_hh: Meta, b_ih: Meta | None, b_hh: Meta | None,
    w_hr: Meta | None, mode: str, reverse: bool, batch_sizes: Size,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Run a recurrent layer in one direction: (rows, features) -> (rows, outputs), and the last states.

    ``mode`` is LSTM, GRU, RNN_TANH or RNN_RELU. ``hx`` is (sequences, outputs), ``cx`` (sequences, hidden). ``w_hr``
    projects the output of an LSTM. ``c_n`` is empty for layers without cells.
    """
    _check_sequence("_rnn_layer", input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, batch_sizes)
    return _results(input, hx, cx)


def _results(input: Meta, hx: Meta, cx: Meta | None) -> tuple[Meta, Meta, Meta]:
    cells = hx.like((0,)) if cx is None else cx.like()
    return input.like((input.shape[0], hx.shape[1])), hx.like(), cells


@op(out=False, method=False, returns=("output", "h_n", "c_n", "kept"))
def _rnn_sequence(
    input: Meta, hx: Meta, cx: Meta | None, w_ih: Meta, w_hh: Meta, b_ih: Meta | None, b_hh: Meta | None,
    w_hr: Meta | None, mode: str, reverse: bool, batch_sizes: Size,
) -> tuple[Meta, Meta, Meta, Meta]:  # fmt: skip
    """Compute ``_rnn_layer``, and the gates and cells that backward needs: (rows, some times hidden)."""
    hidden = _check_sequence("_rnn_sequence", input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, batch_sizes)
    return *_results(input, hx, cx), _kept(input, hidden, mode)


def _kept(input: Meta, hidden: int, mode: str) -> Meta:
    wide = float32 if input.dtype.itemsize == 2 else input.dtype
    return input.like((input.shape[0], KEPT[mode] * hidden), dtype=wide)


@op(
    out=False, method=False, differentiable=False,
    returns=("grad_input", "grad_hx", "grad_cx", "grad_w_ih", "grad_w_hh", "grad_b_ih", "grad_b_hh", "grad_w_hr"),
)  # fmt: skip
def _rnn_sequence_backward(
    grad_output: Meta, grad_h: Meta, grad_c: Meta, input: Meta, hx: Meta, cx: Meta | None, w_ih: Meta, w_hh: Meta,
    b_ih: Meta | None, b_hh: Meta | None, w_hr: Meta | None, output: Meta, kept: Meta, mode: str, reverse: bool,
    batch_sizes: Size,
) -> tuple[Meta, Meta, Meta, Meta, Meta, Meta, Meta, Meta]:  # fmt: skip
    """Compute all gradients of ``_rnn_sequence``; those of operands that are absent are empty."""
    name = "_rnn_sequence_backward"
    hidden = _check_sequence(name, input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, mode, batch_sizes)
    expected = (*_results(input, hx, cx), _kept(input, hidden, mode))
    given = (grad_output, grad_h, grad_c, kept)
    if any(a.shape != b.shape for a, b in zip(given, expected, strict=True)) or output.shape != expected[0].shape:
        raise ShapeError(f"{name}: {given} and {output} are not of a layer with results {expected}")
    if any(not m.dtype.is_floating_point for m in (*given, output)):
        raise DTypeError(f"{name}: expected floating-point types, got {given} and {output}")
    absent = input.like((0,))
    by_cx, by_b_ih, by_b_hh, by_w_hr = (absent if m is None else m.like() for m in (cx, b_ih, b_hh, w_hr))
    return input.like(), hx.like(), by_cx, w_ih.like(), w_hh.like(), by_b_ih, by_b_hh, by_w_hr


def _check_stack(
    name: str, input: Meta, hx: Meta, cx: Meta | None, weights: Sequence[Meta], mode: str, num_layers: int,
    bidirectional: bool, has_biases: bool, batch_sizes: Size,
) -> int:  # fmt: skip
    """Refuse what is no stack of layers and its input; return the hidden size."""
    count = num_layers * (2 if bidirectional else 1)
    if num_layers < 1 or hx.ndim != 3 or hx.shape[0] != count or (cx is not None and cx.ndim != 3):
        raise ShapeError(f"{name}: expected states of {count} layers and directions, got {hx} and {cx}")
    if not weights or len(weights) % count or not 0 <= len(weights) // count - (4 if has_biases else 2) <= 1:
        raise ArgumentError(f"{name}: {len(weights)} weights are not those of {count} layers and directions")
    if input.ndim != 2 or (cx is not None and cx.shape[0] != count):
        raise ShapeError(f"{name}: expected a matrix and states of {count} layers, got {input} and {cx}")
    hidden = 0
    for place, (w_ih, w_hh, b_ih, b_hh, w_hr) in enumerate(layers_of(weights, count, has_biases)):
        rows = input if place < (2 if bidirectional else 1) else input.like(
            (input.shape[0], hx.shape[2] * (2 if bidirectional else 1)))  # fmt: skip
        cells = None if cx is None else cx.like(cx.shape[1:])
        hidden = _check_sequence(
            name, rows, hx.like(hx.shape[1:]), cells, w_ih, w_hh, b_ih, b_hh, w_hr, mode, batch_sizes
        )
    return hidden


def layers_of(weights: Sequence[Any], count: int, has_biases: bool) -> list[tuple[Any, Any, Any, Any, Any]]:
    """Return w_ih, w_hh, b_ih, b_hh and w_hr of every layer and direction, with None for what there is not."""
    each = len(weights) // count
    biases = 2 if has_biases else 0
    groups = [weights[place * each : (place + 1) * each] for place in range(count)]
    return [
        (g[0], g[1], *(g[2:4] if has_biases else (None, None)), g[2 + biases] if each > 2 + biases else None)
        for g in groups
    ]


@op(out=False, method=False, random=True, returns=("output", "h_n", "c_n"))
def _rnn(
    input: Meta, hx: Meta, cx: Meta | None, weights: list[Meta], mode: str, num_layers: int, bidirectional: bool,
    has_biases: bool, dropout: float, batch_sizes: Size,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    """Run recurrent layers on top of each other: (rows, features) -> (rows, directions * outputs), and the last states.

    ``hx`` is (layers * directions, sequences, outputs), ``cx`` the same of cells. ``weights`` are w_ih, w_hh, and
    where there are any b_ih, b_hh and w_hr, of each layer and direction. ``dropout`` is the probability with which
    what one layer hands to the next is zeroed.
    """
    _check_stack("_rnn", input, hx, cx, weights, mode, num_layers, bidirectional, has_biases, batch_sizes)
    if not 0 <= dropout <= 1:
        raise ArgumentError(f"_rnn: dropout must be a probability, got {dropout}")
    return _stack_results(input, hx, cx, bidirectional)


def _stack_results(input: Meta, hx: Meta, cx: Meta | None, bidirectional: bool) -> tuple[Meta, Meta, Meta]:
    cells = hx.like((0,)) if cx is None else cx.like()
    return input.like((input.shape[0], hx.shape[2] * (2 if bidirectional else 1))), hx.like(), cells


@op(out=False, method=False)
def _flat_weights(tensors: list[Meta], order: Size) -> Meta:
    """Copy tensors one after the other into a vector; ``order`` are their places in the list, each of them once."""
    if not tensors or sorted(order) != list(range(len(tensors))):
        raise ArgumentError(f"_flat_weights: {list(order)} is not an order of {len(tensors)} tensors")
    if any(tensor.dtype is not tensors[0].dtype for tensor in tensors):
        raise DTypeError(f"_flat_weights: expected tensors of one type, got {tensors}")
    return tensors[0].like((sum(tensor.numel for tensor in tensors),))


@op(out=False, method=False, returns=("output", "h_n", "c_n", "reserve"))
def _cudnn_rnn(
    input: Meta, hx: Meta, cx: Meta | None, weight: Meta, mode: str, hidden_size: int, num_layers: int,
    bidirectional: bool, has_biases: bool, batch_sizes: Size, allow_tf32: bool, reserve_bytes: int,
) -> tuple[Meta, Meta, Meta, Meta]:  # fmt: skip
    """Compute ``_rnn`` without dropout by one call of cuDNN.

    ``weight`` is all weights in the order in which cuDNN has them. ``reserve`` is what cuDNN's backward pass reads;
    none if ``reserve_bytes`` is 0.
    """
    _check_fused("_cudnn_rnn", input, hx, cx, weight, mode, hidden_size, num_layers, bidirectional, batch_sizes)
    if reserve_bytes < 0:
        raise ArgumentError(f"_cudnn_rnn: reserve_bytes must not be negative, got {reserve_bytes}")
    return *_stack_results(input, hx, cx, bidirectional), input.like((reserve_bytes,), uint8)


def _check_fused(
    name: str, input: Meta, hx: Meta, cx: Meta | None, weight: Meta, mode: str, hidden_size: int, num_layers: int,
    bidirectional: bool, batch_sizes: Size,
) -> None:  # fmt: skip
    if mode not in GATES or hidden_size < 1 or num_layers < 1:
        raise ArgumentError(f"{name}: {mode!r} with {num_layers} layers of {hidden_size} cells is no stack of layers")
    count = num_layers * (2 if bidirectional else 1)
    if input.ndim != 2 or hx.ndim != 3 or hx.shape[0] != count or not hx.shape[1] or weight.ndim != 1:
        raise ShapeError(f"{name}: expected rows, states of {count} layers and one vector of weights, got {input}, "
                         f"{hx} and {weight}")  # fmt: skip
    if (cx is None) is (mode == "LSTM") or (cx is not None and cx.shape != (*hx.shape[:2], hidden_size)):
        raise ShapeError(f"{name}: the state of cells is {cx}, and the layers have {hidden_size} cells")
    if hx.shape[2] > hidden_size or (hx.shape[2] != hidden_size and mode != "LSTM"):
        raise ShapeError(f"{name}: state {hx} is not of {hidden_size} cells")
    operands = [m for m in (hx, cx, weight) if m is not None]
    if not input.dtype.is_floating_point or any(m.dtype is not input.dtype for m in operands):
        raise DTypeError(f"{name}: expected operands of one floating-point type, got {input} and {operands}")
    _check_batch_sizes(name, input, hx.like(hx.shape[1:]), batch_sizes)


@op(out=False, method=False, returns=("grad_input", "grad_hx", "grad_cx", "grad_weight"),
    no_grad=("output", "reserve"))  # fmt: skip
def _cudnn_rnn_backward(
    grad_output: Meta, grad_h: Meta, grad_c: Meta, input: Meta, hx: Meta, cx: Meta | None, weight: Meta, output: Meta,
    reserve: Meta, mode: str, hidden_size: int, num_layers: int, bidirectional: bool, has_biases: bool,
    batch_sizes: Size, allow_tf32: bool,
) -> tuple[Meta, Meta, Meta, Meta]:  # fmt: skip
    """Compute all gradients of ``_cudnn_rnn``; that of ``cx`` is empty where there is none."""
    name = "_cudnn_rnn_backward"
    _check_fused(name, input, hx, cx, weight, mode, hidden_size, num_layers, bidirectional, batch_sizes)
    expected = _stack_results(input, hx, cx, bidirectional)
    given = (grad_output, grad_h, grad_c)
    if any(a.shape != b.shape or a.dtype is not input.dtype for a, b in zip(given, expected, strict=True)) or (
        output.shape != expected[0].shape or output.dtype is not input.dtype or reserve.dtype is not uint8
    ):
        raise ShapeError(f"{name}: {given}, {output} and {reserve} are not of layers with results {expected}")
    return input.like(), hx.like(), hx.like((0,)) if cx is None else cx.like(), weight.like()
