"""Recurrent layers on top of each other, as one operation: on a GPU one call of cuDNN, elsewhere layer by layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine import context
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError
from tests.gpus import ALL_DEVICES, GPUS

from .adapters import EngineAdapter
from .harness import Comparison

KINDS = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN_TANH": torch.nn.RNN, "RNN_RELU": torch.nn.RNN}
FEATURES, HIDDEN, SEQUENCES = 4, 5, 3


@pytest.fixture(params=ALL_DEVICES)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _layers(mode: str, layers: int, both: bool, bias: bool, proj: int, dtype: torch.dtype) -> Any:
    options: dict[str, Any] = {"nonlinearity": mode[4:].lower()} if mode.startswith("RNN") else {}
    options |= {"proj_size": proj} if proj else {}
    return KINDS[mode](FEATURES, HIDDEN, layers, bias=bias, bidirectional=both, dtype=dtype, **options)


def _operands(layer: Any, rows: int, dtype: torch.dtype) -> list[Any]:
    """Rows, states and weights, all of which require a gradient."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.randn(count, SEQUENCES, layer.proj_size or HIDDEN, dtype=dtype)]
    if layer.mode == "LSTM":
        states.append(torch.randn(count, SEQUENCES, HIDDEN, dtype=dtype))
    weights = [w.detach().clone().requires_grad_() for w in layer.parameters()]
    cells = states[1].requires_grad_() if len(states) > 1 else None
    return [torch.randn(rows, FEATURES, dtype=dtype, requires_grad=True), states[0].requires_grad_(), cells, weights]


def _reference(layer: Any, batch_sizes: tuple[int, ...], x: Any, hx: Any, cx: Any, weights: list[Any]) -> list[Any]:
    names = [name for name, _ in layer.named_parameters()]
    sizes = torch.tensor(batch_sizes or (SEQUENCES,) * (len(x) // SEQUENCES))
    packed = torch.nn.utils.rnn.PackedSequence(x, sizes)
    parameters = dict(zip(names, weights, strict=True))
    output, last = torch.func.functional_call(layer, parameters, (packed, hx if cx is None else (hx, cx)))
    return [output.data, *([last] if cx is None else last)]


def _ours(engine: EngineAdapter, layer: Any, batch_sizes: tuple[int, ...], dropout: float = 0.0) -> Any:
    def run(x: Any, hx: Any, cx: Any, weights: list[Any]) -> Any:
        return engine.functional._rnn(
            x, hx, cx, weights, layer.mode, layer.num_layers, layer.bidirectional, layer.bias, dropout, batch_sizes
        )[: 2 + (layer.mode == "LSTM")]

    return run


@pytest.mark.parametrize("batch_sizes", [(), (3, 3, 2, 2, 1)], ids=["dense", "packed"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize(("mode", "layers", "proj", "bias"), [
    ("LSTM", 1, 0, True), ("LSTM", 2, 2, True), ("LSTM", 3, 0, False), ("GRU", 2, 0, True), ("GRU", 1, 0, False),
    ("RNN_TANH", 2, 0, True), ("RNN_RELU", 1, 0, False),
])  # fmt: skip
def test_outputs_states_and_gradients_are_pytorchs(
    engine: EngineAdapter, mode: str, layers: int, proj: int, bias: bool, both: bool, batch_sizes: tuple[int, ...],
    seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    layer = _layers(mode, layers, both, bias, proj, torch.float64)
    operands = _operands(layer, sum(batch_sizes) or 9, torch.float64)
    Comparison(engine, check_strides=False).run(
        lambda *given: _reference(layer, batch_sizes, *given), _ours(engine, layer, batch_sizes), operands, {},
        second=False,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("mode", list(KINDS))
def test_narrow_types_are_pytorchs_within_their_rounding(
    engine: EngineAdapter, mode: str, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = _layers(mode, 2, True, True, 0, torch.float64)
    wide = [t if t is None or isinstance(t, list) else t.detach() for t in _operands(layer, 9, torch.float64)]
    wide[3] = [w.detach() for w in wide[3]]
    narrow = [None if t is None else [w.to(dtype) for w in t] if isinstance(t, list) else t.to(dtype) for t in wide]
    rounded = [
        None if t is None else [w.double() for w in t] if isinstance(t, list) else t.double() for t in narrow
    ]  # fmt: skip
    expected = _reference(layer, (), *rounded)
    given = [
        None if t is None else [engine.tensor(w) for w in t] if isinstance(t, list) else engine.tensor(t)
        for t in narrow
    ]  # fmt: skip
    slack = 4 if dtype.itemsize == 2 else 1000 if engine.device.type == "cuda" else 4  # TensorFloat-32 has 10 bits
    for mine, reference in zip(_ours(engine, layer, ())(*given), expected, strict=True):
        Comparison(engine, slack=slack, check_strides=False).compare(mine, reference.detach().to(dtype))


def test_dropout_zeroes_what_one_layer_hands_to_the_next(engine: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    layer = _layers("LSTM", 2, False, True, 0, torch.float64)
    given = [
        None if t is None else [engine.tensor(w) for w in t] if isinstance(t, list) else engine.tensor(t)
        for t in _operands(layer, 9, torch.float64)
    ]  # fmt: skip
    zeroed, whole = _ours(engine, layer, (), 1.0)(*given), _ours(engine, layer, ())(*given)
    silent = [*given[:3], [*given[3][:4], engine.functional.zeros_like(given[3][4]), *given[3][5:]]]
    expected = _ours(engine, layer, ())(*silent)
    Comparison(engine, check_strides=False).compare(zeroed[0], torch.from_numpy(engine.numpy(expected[0]).copy()))
    assert abs(engine.numpy(zeroed[0]) - engine.numpy(whole[0])).max() > 1e-3


@pytest.mark.parametrize("device", GPUS)
def test_a_second_pass_through_the_same_graph_finds_what_the_first_one_did(device: str, seed: int) -> None:
    engine = EngineAdapter(device)
    torch.manual_seed(seed)
    layer = _layers("LSTM", 2, True, True, 0, torch.float64)
    x, hx, cx, weights = _operands(layer, 9, torch.float64)
    leaves = [engine.tensor(w, True) for w in weights]
    output = _ours(engine, layer, ())(engine.tensor(x), engine.tensor(hx), engine.tensor(cx), leaves)[0]
    total = engine.functional.sum(engine.functional.square(output))
    first = [engine.numpy(g) for g in engine.grad([total], [None], leaves, True)]
    for ours, again in zip(first, engine.grad([total], [None], leaves, True), strict=True):
        assert (ours == engine.numpy(again)).all()


@pytest.mark.parametrize("device", GPUS)
def test_cudnn_has_no_second_derivative_and_the_composition_has(device: str, seed: int) -> None:
    engine = EngineAdapter(device)
    torch.manual_seed(seed)
    layer = _layers("GRU", 2, True, True, 0, torch.float64)
    operands = _operands(layer, 9, torch.float64)
    values = [None if t is None else t for t in operands]

    def second() -> None:
        Comparison(engine, check_strides=False).run(
            lambda *given: _reference(layer, (), *given), _ours(engine, layer, ()), values, {}, second=True
        )

    with pytest.raises(NotSupportedError, match=r"cudnn\.enabled = False"):
        second()
    context.current.cudnn = context.current.cudnn._replace(enabled=False)
    second()


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"num_layers": 3}, ShapeError, "states of 3 layers"), ({"weights": 1}, ArgumentError, "weights are not those"),
    ({"dropout": 1.5}, ArgumentError, "dropout must be a probability"), ({"mode": "TRU"}, ArgumentError, "mode must"),
    ({"batch_sizes": (3, 4, 2)}, ArgumentError, "batch_sizes must fall from 3"), ({"cx": None}, ShapeError, "cells is"),
    ({"has_biases": False}, ArgumentError, "8 weights are not those of 2"),
])  # fmt: skip
def test_what_is_no_stack_of_layers_is_refused(change: dict[str, Any], error: type[Exception], match: str) -> None:
    engine = EngineAdapter()
    layer = _layers("LSTM", 2, False, True, 0, torch.float64)
    x, hx, cx, weights = _operands(layer, 9, torch.float64)
    arguments: dict[str, Any] = {
        "input": engine.tensor(x), "hx": engine.tensor(hx), "cx": engine.tensor(cx),
        "weights": [engine.tensor(w) for w in weights], "mode": "LSTM", "num_layers": 2, "bidirectional": False,
        "has_biases": True, "dropout": 0.0, "batch_sizes": (),
    }  # fmt: skip
    if "weights" in change:
        change = {"weights": arguments["weights"][: change["weights"]]}
    with pytest.raises(error, match=match):
        engine.functional._rnn(**{**arguments, **change})
