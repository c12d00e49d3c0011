"""What nested tensors are made of: ragged sizes, offsets, gaps, text, files, and how often the client waits."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from telegrad import TelegradError

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
LAYOUTS = ("jagged", "strided")


def batch(t: Any, arrays: list[Any], layout: str = "jagged", **options: Any) -> Any:
    return t.nested.nested_tensor([t.tensor(array) for array in arrays], layout=getattr(t, layout), **options)


@pytest.fixture
def arrays(rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal((length, 4)).astype(np.float32) for length in (2, 0, 3)]


def test_ragged_sizes_are_equal_where_offsets_are_shared(tg: Any, arrays: list[Any]) -> None:
    first, second = batch(tg, arrays), batch(tg, arrays)
    assert first.shape == (first * 2).shape == first.double().shape == first.clone().detach().shape
    assert first.shape != second.shape and first.size(1) != second.size(1) and first.size(1) != 3
    rebuilt = tg.nested.nested_tensor_from_jagged(first.values() + 1, first.offsets())
    assert rebuilt.shape == first.shape and hash(rebuilt.size(1)) == hash(first.size(1))
    assert isinstance(first.size(1), tg.SymInt) and tg.Size(first.shape) == first.shape
    assert (first + rebuilt).shape == first.shape
    with pytest.raises(RuntimeError, match="same offsets"):
        first + second


def test_the_number_of_a_ragged_size_is_unknown(tg: Any, arrays: list[Any]) -> None:
    size = batch(tg, arrays).size(1)
    assert size >= 2 and not size < 2 and size * 3 == 3 * size and size * 3 >= size and size != size * 2
    for ask in (lambda: size < 3, lambda: size >= batch(tg, arrays).size(1), lambda: int(size), lambda: range(size)):
        with pytest.raises((ValueError, TypeError), match="ragged size j"):
            ask()


def test_text_is_pytorchs(tg: Any, arrays: list[Any]) -> None:
    for options in ({}, {"requires_grad": True}):
        ours, theirs = batch(tg, arrays, **options), batch(torch, arrays, **options)
        shown = repr(theirs).replace(str(theirs.size(1)), str(ours.size(1)))
        assert repr(ours) == str(ours) == f"{ours}" == shown
    strided = batch(tg, arrays, "strided", requires_grad=True) * 1
    assert repr(strided) == repr(batch(torch, arrays, "strided", requires_grad=True) * 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_and_pickles_are_nested(tg: Any, arrays: list[Any], layout: str) -> None:
    nested = batch(tg, arrays, layout, requires_grad=layout == "jagged")
    for made in (copy.deepcopy(nested), copy.copy(nested), pickle.loads(pickle.dumps(nested))):
        assert made.is_nested and made.layout is nested.layout and made.requires_grad == nested.requires_grad
        for part, array in zip(made.detach().unbind(), arrays, strict=True):
            np.testing.assert_array_equal(part.numpy(), array)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_are_those_of_pytorch(tg: Any, arrays: list[Any], layout: str) -> None:
    ours, theirs = io.BytesIO(), io.BytesIO()
    tg.save({"batch": batch(tg, arrays, layout)}, ours)
    torch.save({"batch": batch(torch, arrays, layout)}, theirs)
    for file in (ours, theirs):
        for load in (torch.load, tg.load):
            file.seek(0)
            read = load(file)["batch"]
            assert read.is_nested
            for part, array in zip(read.unbind(), arrays, strict=True):
                np.testing.assert_array_equal(part.numpy(), array)


def test_gaps_are_left_out(tg: Any, rng: np.random.Generator) -> None:
    values = rng.standard_normal((8, 2)).astype(np.float32)
    found = []
    for t in (tg, torch):
        offsets, lengths = t.tensor([0, 3, 5, 8]), t.tensor([1, 2, 0])
        nested = t.nested.nested_tensor_from_jagged(t.tensor(values), offsets, lengths)
        assert not nested.is_contiguous() and nested.contiguous().is_contiguous() and nested.numel() == 6
        assert nested.lengths().tolist() == [1, 2, 0]
        found.append([part.tolist() for part in (*nested.unbind(), *nested.contiguous().unbind(), nested[1])])
    assert found[0] == found[1]


def test_attention_heeds_gaps(tg: Any, rng: np.random.Generator) -> None:
    cache = rng.standard_normal((3, 6, 2, 4)).astype(np.float32)
    kept = tg.nested.narrow(tg.tensor(cache), 1, tg.tensor([0, 2, 1]), tg.tensor([4, 1, 5]), layout=tg.jagged)
    query = tg.nested.nested_tensor([tg.ones(n, 2, 4) for n in (1, 2, 1)], layout=tg.jagged).transpose(1, 2)
    keys = kept.transpose(1, 2)
    ours = tg.nn.functional.scaled_dot_product_attention(query, keys, keys).transpose(1, 2)
    for row, (start, length) in enumerate(((0, 4), (2, 1), (1, 5))):
        one = torch.tensor(cache[row, start : start + length]).transpose(0, 1)
        asked = torch.ones(2, ours[row].shape[0], 4)
        expected = torch.nn.functional.scaled_dot_product_attention(asked, one, one).transpose(0, 1)
        np.testing.assert_allclose(ours[row].numpy(), expected.numpy(), 1e-4, 1e-5)


def test_writing_reaches_the_values(tg: Any) -> None:
    values = tg.zeros(5, 2)
    nested = tg.nested.nested_tensor_from_jagged(values, tg.tensor([0, 2, 5]))
    nested.add_(1)
    nested[1] = 7.0
    nested.unbind()[0].mul_(3)
    assert values.tolist() == [[3, 3]] * 2 + [[7, 7]] * 3


def test_nothing_waits_for_what_the_client_knows(tg: Any, arrays: list[Any]) -> None:
    nested = batch(tg, arrays, requires_grad=True)
    weight = tg.randn(4, 4, requires_grad=True)
    before = tg.wire_stats().round_trips
    heads = (nested @ weight).unflatten(-1, (2, 2)).transpose(1, 2)
    attended = tg.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
    result = tg.nn.functional.layer_norm(attended.softmax(1) + nested, (4,)).mean(1)
    result.sum().backward()
    parts = [part.shape for part in nested.unbind()]
    assert tg.wire_stats().round_trips == before and parts == [(2, 4), (0, 4), (3, 4)]
    assert nested.grad.shape == nested.shape and weight.grad.shape == (4, 4)


def test_offsets_of_the_program_are_read_once(tg: Any) -> None:
    nested = tg.nested.nested_tensor_from_jagged(tg.randn(5, 4), tg.tensor([0, 2, 2, 5]))
    before = tg.wire_stats().round_trips
    nested.sum(1), nested.to_padded_tensor(0.0), nested + 1
    assert tg.wire_stats().round_trips == before
    nested.unbind(), nested.softmax(1), nested[0]
    assert tg.wire_stats().round_trips == before + 1


def test_compiled_functions_take_nested_tensors(tg: Any, arrays: list[Any]) -> None:
    weight = tg.randn(4, 4)

    def run(nested: Any) -> Any:
        return tg.nn.functional.linear(nested, weight).relu() + 1

    compiled = tg.compile(run)
    nested = batch(tg, arrays)
    for _ in range(3):
        np.testing.assert_allclose(compiled(nested).values().numpy(), run(nested).values().numpy(), 1e-5)


def test_modules_take_nested_tensors(tg: Any, arrays: list[Any]) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.GELU(), tg.nn.LayerNorm(8), tg.nn.RMSNorm(8), tg.nn.Dropout(0.5))
    nested = batch(tg, arrays)
    result = model(nested)
    assert result.shape == (3, nested.size(1), 8)
    result.values().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    plain = model.eval()(nested)
    np.testing.assert_allclose(plain.values().detach().numpy(), model(nested.values()).detach().numpy(), 1e-5, 1e-6)


def test_inference_and_autocast_keep_the_division(tg: Any, arrays: list[Any]) -> None:
    nested, weight = batch(tg, arrays), tg.randn(3, 4)
    with tg.inference_mode():
        assert (nested * 2).shape == nested.shape
    with tg.autocast("cpu", dtype=tg.bfloat16):
        cast = tg.nn.functional.linear(nested, weight)
    assert cast.dtype is tg.bfloat16 and cast.shape[:2] == nested.shape[:2]


def test_what_has_no_meaning_is_refused_with_a_reason(tg: Any, arrays: list[Any]) -> None:
    nested, strided = batch(tg, arrays), batch(tg, arrays, "strided")
    for wrong, reason in (
        (lambda: nested.cumsum(1), "cumsum: not supported for nested tensors"),
        (lambda: tg.equal(nested, nested), r"compare their values\(\) and offsets\(\)"),
        (lambda: nested.allclose(nested), "allclose: not supported"),
        (lambda: nested.numpy(), "use unbind"),
        (lambda: strided.shape, "no one shape"),
        (lambda: strided == strided, "does not support nested tensor as other value"),
        (lambda: strided.log_softmax(-1), "use layout=torch.jagged"),
        (lambda: tg.nested.nested_tensor_from_jagged(nested.values(), tg.ones(2, 2).long()), "n \\+ 1 offsets"),
        (lambda: tg.add(nested, nested.size(1)), "invalid argument j"),
        (lambda: nested.data_ptr(), "made of several tensors"),
        (lambda: tg.nested.to_padded_tensor(tg.ones(2, 2), 0.0), "expected a nested tensor"),
    ):
        with pytest.raises(TelegradError, match=reason):
            wrong()
