"""Recurrent layers on every device: the kernel over whole sequences, and the composition of operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine.ops.layers.rnn import _composed
from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.ops.layers import rnn as contracts
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import Comparison

LAYERS = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN_TANH": torch.nn.RNN, "RNN_RELU": torch.nn.RNN}
BATCH_SIZES = [(), (3, 3, 2, 2, 1)]


@pytest.fixture(params=ALL_DEVICES)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _operands(mode: str, proj: int, bias: bool, rows: int) -> list[Any]:
    """Random operands of ``_rnn_layer``: three sequences, features of 4, 5 cells."""
    gates, outputs = contracts.GATES[mode], proj or 5

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).mul_(0.5).requires_grad_()

    return [
        leaf(rows, 4), leaf(3, outputs), leaf(3, 5) if mode == "LSTM" else None, leaf(gates * 5, 4),
        leaf(gates * 5, outputs), leaf(gates * 5) if bias else None, leaf(gates * 5) if bias else None,
        leaf(proj, 5) if proj else None,
    ]  # fmt: skip


def _reference(mode: str, reverse: bool, batch_sizes: tuple[int, ...], operands: list[Any]) -> list[torch.Tensor]:
    """PyTorch's layer in one direction, as the backward one of a layer of both directions if ``reverse``."""
    x, hx, cx, _, _, b_ih, _, w_hr = operands
    kind, proj = LAYERS[mode], {"proj_size": hx.shape[1]} if w_hr is not None else {}
    options = {"nonlinearity": mode[4:].lower()} if mode.startswith("RNN") else proj
    layer = kind(4, 5, bias=b_ih is not None, bidirectional=reverse, dtype=torch.float64, **options)
    names = [n for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr") if hasattr(layer, f"{n}_l0")]
    given = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"), operands[3:], strict=True))
    suffix = "_l0_reverse" if reverse else "_l0"
    sizes = torch.tensor(batch_sizes or (3,) * (len(x) // 3))
    packed = torch.nn.utils.rnn.PackedSequence(x, sizes)

    def states(state: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.zeros_like(state), state]) if reverse else state[None]

    initial = states(hx) if cx is None else (states(hx), states(cx))
    parameters = {name + suffix: given[name] for name in names}
    output, last = torch.func.functional_call(layer, parameters, (packed, initial))
    ended = [last] if cx is None else list(last)
    return [output.data[:, -hx.shape[1] :], *(state[-1] for state in ended)]


@pytest.mark.parametrize("batch_sizes", BATCH_SIZES, ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("mode", "proj", "bias"), [
    ("LSTM", 0, True), ("LSTM", 2, True), ("LSTM", 0, False), ("GRU", 0, True), ("GRU", 0, False),
    ("RNN_TANH", 0, True), ("RNN_RELU", 0, False),
])  # fmt: skip
@pytest.mark.parametrize("way", ["layer", "composed"])
def test_outputs_states_and_gradients_are_pytorchs(
    engine: EngineAdapter, way: str, mode: str, proj: int, bias: bool, reverse: bool, batch_sizes: tuple[int, ...],
    seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    operands = _operands(mode, proj, bias, sum(batch_sizes) or 9)

    def ours(*values: Any) -> Any:
        run = engine.functional._rnn_layer if way == "layer" else _composed
        return run(*values, mode, reverse, batch_sizes)[: 2 + (mode == "LSTM")]

    def theirs(*values: Any) -> Any:
        return _reference(mode, reverse, batch_sizes, list(values))

    Comparison(engine, check_strides=False).run(theirs, ours, operands, {}, second=True)


def test_a_gradient_penalty_reaches_what_is_before_the_layer(engine: EngineAdapter, seed: int) -> None:
    """The pass within the pass ends where the layer begins, whatever its operands were computed from."""
    torch.manual_seed(seed)
    operands = _operands("GRU", 0, True, 6)

    def theirs(x: Any, *rest: Any) -> Any:
        return _reference("GRU", False, (), [torch.tanh(x), rest[0], None, *[w * 2 for w in rest[2:4]], *rest[4:]])

    def ours(x: Any, *rest: Any) -> Any:
        f = engine.functional
        weights = [f.mul(w, 2) for w in rest[2:4]]
        return f._rnn_layer(f.tanh(x), rest[0], None, *weights, *rest[4:], "GRU", False, ())[:2]

    Comparison(engine, check_strides=False).run(theirs, ours, operands, {}, second=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_computed_in_float32(engine: EngineAdapter, dtype: torch.dtype) -> None:
    operands = [None if t is None else t.detach().to(dtype) for t in _operands("LSTM", 0, True, 9)]
    found = engine.functional._rnn_layer(
        *(None if t is None else engine.tensor(t) for t in operands), "LSTM", False, ()
    )
    wide = _reference("LSTM", False, (), [None if t is None else t.double() for t in operands])
    Comparison(engine, slack=4, check_strides=False).compare(found[0], wide[0].detach().to(dtype))


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"mode": "TRU"}, ArgumentError, "mode must be one of LSTM, GRU"),
    ({"batch_sizes": (3, 4, 2)}, ArgumentError, "batch_sizes must fall from 3"),
    ({"batch_sizes": (3, 3, 2)}, ArgumentError, "sum to 9"),
    ({"batch_sizes": (3, 3, 3, 0)}, ArgumentError, "batch_sizes must fall"),
    ({"cx": None}, ShapeError, "the state of cells is None"),
    ({"b_hh": None}, ShapeError, "biases must be two"),
    ({"w_hr": "w_ih"}, ShapeError, "nor projected by"),
])  # fmt: skip
def test_what_is_no_layer_is_refused(change: dict[str, Any], error: type[Exception], match: str) -> None:
    engine = EngineAdapter()
    names = ("input", "hx", "cx", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
    operands = {
        n: None if t is None else engine.tensor(t) for n, t in zip(names, _operands("LSTM", 0, True, 9), strict=True)
    }
    given = {**operands, "mode": "LSTM", "reverse": False, "batch_sizes": (), **change}
    given["w_hr"] = operands["w_ih"] if given["w_hr"] == "w_ih" else given["w_hr"]
    with pytest.raises(error, match=match):
        engine.functional._rnn_layer(*given.values())
