"""Recurrent modules beyond what the module database has: packed sequences, dropout, and sequences of many lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as theirs_rnn

from .pairs import Arguments, Pair, assert_close, flat

KINDS = {
    "LSTM": lambda nn, dtype: nn.LSTM(4, 5, 2, bidirectional=True, proj_size=3, dtype=dtype),
    "GRU": lambda nn, dtype: nn.GRU(4, 5, 2, bidirectional=True, batch_first=True, dtype=dtype),
    "RNN": lambda nn, dtype: nn.RNN(4, 5, 3, "relu", False, dtype=dtype),
}


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(tg: Any, kind: str, is_sorted: bool, seed: int) -> None:
    torch.manual_seed(seed)
    pair = Pair.of(tg, KINDS[kind](torch.nn, torch.float64), KINDS[kind](tg.nn, tg.float64))
    lengths = [5, 5, 3, 1] if is_sorted else [3, 5, 1, 5]
    padded = torch.randn(5, 4, 4, dtype=torch.float64, requires_grad=True)
    packed = theirs_rnn.pack_padded_sequence(padded, lengths, enforce_sorted=is_sorted)
    pair.compare(tg, [packed])
    if kind == "LSTM":
        states = [torch.randn(4, 4, size, dtype=torch.float64, requires_grad=True) for size in (3, 5)]
        pair = Pair.of(tg, KINDS[kind](torch.nn, torch.float64), KINDS[kind](tg.nn, tg.float64))
        pair.compare(tg, [theirs_rnn.pack_padded_sequence(padded, lengths, enforce_sorted=is_sorted), tuple(states)])


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_and_padding(tg: Any, batch_first: bool, seed: int) -> None:
    torch.manual_seed(seed)
    ours_rnn, given = tg.nn.utils.rnn, Arguments(tg)
    sequences = [torch.randn(length, 2, requires_grad=True) for length in (3, 5, 1)]
    mine = given.translated(sequences)
    for side in ("left", "right"):
        options: dict[str, Any] = {"batch_first": batch_first, "padding_value": -1.0, "padding_side": side}
        padded = ours_rnn.pad_sequence(mine, **options)
        assert_close(padded, theirs_rnn.pad_sequence(sequences, **options), side)
    unpadded = ours_rnn.unpad_sequence(padded, tg.tensor([3, 5, 1]), batch_first)
    assert [tuple(t.shape) for t in unpadded] == [(3, 2), (5, 2), (1, 2)]
    packed, reference = (
        r.pack_sequence(s, enforce_sorted=False) for r, s in ((ours_rnn, mine), (theirs_rnn, sequences))
    )
    for a, b in zip(packed, reference, strict=True):
        assert_close(a, b, "packed")
    found = flat(ours_rnn.pad_packed_sequence(packed, batch_first, 7.0, 6))
    expected = flat(theirs_rnn.pad_packed_sequence(reference, batch_first, 7.0, 6))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, "padded")
    (found[0] ** 2).sum().backward()
    (expected[0] ** 2).sum().backward()
    for b, a in given.leaves:
        assert_close(a.grad, b.grad, "gradient")
    for a, b in zip(ours_rnn.unpack_sequence(packed), sequences, strict=True):
        assert_close(a, b, "unpacked")


def test_a_packed_batch_waits_for_nothing(tg: Any) -> None:
    lstm, before = tg.nn.LSTM(4, 5), tg.wire_stats().round_trips
    packed = tg.nn.utils.rnn.pack_padded_sequence(tg.randn(5, 3, 4), [5, 3, 2])
    output, _ = lstm(packed)
    padded, _ = tg.nn.utils.rnn.pad_packed_sequence(output)
    padded.sum().backward()
    assert tg.wire_stats().round_trips == before


def test_dropout_is_between_layers_and_only_in_training(tg: Any) -> None:
    lstm, x = tg.nn.LSTM(4, 50, 2, dropout=1.0), tg.randn(3, 2, 4)
    lone = tg.nn.LSTM(4, 50, 2)
    lone.load_state_dict(lstm.state_dict())
    dropped = lstm(x)[0]
    assert not np.array_equal(dropped.tolist(), lone(x)[0].tolist())
    assert np.array_equal(lstm(x * 2)[0].tolist(), dropped.tolist()), "nothing of the first layer reaches the second"
    assert np.array_equal(lstm.eval()(x)[0].tolist(), lone(x)[0].tolist())


@pytest.mark.parametrize(("make", "error", "match"), [
    (lambda nn: nn.RNN(3, 4, 1, "sin"), ValueError, "Unknown nonlinearity 'sin'"),
    (lambda nn: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM"),
    (lambda nn: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size has to be smaller than hidden_size"),
    (lambda nn: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
    (lambda nn: nn.LSTM(3, 4, dropout=2), ValueError, r"dropout should be a number in range \[0, 1\]"),
])  # fmt: skip
def test_settings_are_refused_as_by_pytorch(tg: Any, make: Any, error: type[Exception], match: str) -> None:
    for nn in (torch.nn, tg.nn):
        with pytest.raises(error, match=match):
            make(nn)


@pytest.mark.parametrize(("shape", "state", "match"), [
    ((5, 2, 3), None, r"input.size\(-1\) must be equal to input_size. Expected 4, got 3"),
    ((5, 2, 4), (1, 3, 5), r"Expected hidden size \(1, 2, 5\), got \[1, 3, 5\]"),
    ((5, 2, 4), (1, 5), "hx should also be 3-D but got 2-D tensor"),
])  # fmt: skip
def test_inputs_are_refused_as_by_pytorch(tg: Any, shape: Any, state: Any, match: str) -> None:
    for t in (torch, tg):
        with pytest.raises(RuntimeError, match=match):
            t.nn.GRU(4, 5)(t.randn(shape), None if state is None else t.randn(state))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["plain", "packed", "unbatched"])
def test_gradients_of_layers_are_differentiated_again(tg: Any, kind: str, form: str, seed: int) -> None:
    torch.manual_seed(seed)
    pair = Pair.of(tg, KINDS[kind](torch.nn, torch.float64), KINDS[kind](tg.nn, tg.float64))
    x = torch.randn(*((5, 4) if form == "unbatched" else (3, 3, 4)), dtype=torch.float64)
    results = []
    for library, module in ((torch, pair.theirs), (tg, pair.ours)):
        leaf = library.tensor(x.numpy()).requires_grad_()
        given = leaf
        if form == "packed":
            pack = library.nn.utils.rnn.pack_padded_sequence
            given = pack(leaf, [2, 3, 1, 3, 2][: leaf.shape[1 - module.batch_first]], module.batch_first, False)
        output, state = module(given)
        last = sum((s**3).sum() for s in (state if isinstance(state, tuple) else (state,)))
        leaves = [leaf, *module.parameters()]
        total = ((output.data if form == "packed" else output) ** 2).sum() + last
        first = library.autograd.grad(total, leaves, create_graph=True)
        second = library.autograd.grad(sum((g * g).sum() for g in first), leaves, allow_unused=True)
        results.append([*first, *second])
    for mine, other in zip(results[1], results[0], strict=True):
        assert_close(mine, other, "gradient")


@pytest.mark.parametrize("kind", ["long", "int", "short", "char", "byte", "half", "double"])
def test_packed_sequences_are_cast(tg: Any, kind: str) -> None:
    packed = [
        getattr(t.nn.utils.rnn.pack_sequence([t.tensor([1.0, 2.0]), t.tensor([3.0])]), kind)() for t in (tg, torch)
    ]
    assert str(packed[0].data.dtype).rpartition(".")[2] == str(packed[1].data.dtype).rpartition(".")[2]
    assert packed[0].data.tolist() == packed[1].data.tolist()
