"""Attention layers on nested tensors, and encoders that drop padding outside of training, as under PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

MASKS = {
    "behind": [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 1]],
    "between": [[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 1]],
}
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor")


def same_state(tg: Any, ours: Any, theirs: Any) -> Any:
    ours.load_state_dict({name: tg.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours


def encoders(tg: Any, norm: bool = False, checks: bool = True, **options: Any) -> tuple[Any, Any]:
    def make(t: Any) -> Any:
        layer = t.nn.TransformerEncoderLayer(8, 2, 16, **{"batch_first": True, **options})
        return t.nn.TransformerEncoder(layer, 2, t.nn.LayerNorm(8) if norm else None, mask_check=checks)

    theirs = make(torch)
    return same_state(tg, make(tg), theirs).eval(), theirs.eval()


def encoded(t: Any, model: Any, src: Any, padding: Any, kind: str, records: bool) -> Any:
    mask = t.tensor(padding)
    if kind == "float":
        mask = t.zeros(*padding.shape).masked_fill(mask, float("-inf"))
    with t.set_grad_enabled(records):
        return model(t.tensor(src), src_key_padding_mask=mask).detach().numpy()


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("where", MASKS)
@pytest.mark.parametrize(("norm", "checks"), [(False, True), (True, True), (True, False)])
def test_encoders_pad_with_zeros_as_pytorch_does(
    tg: Any, rng: np.random.Generator, norm: bool, checks: bool, where: str, kind: str
) -> None:
    ours, theirs = encoders(tg, norm, checks)
    src, padding = rng.standard_normal((4, 5, 8)).astype(np.float32), np.array(MASKS[where], bool)
    for records in (False, True):
        pair = (encoded(tg, ours, src, padding, kind, records), encoded(torch, theirs, src, padding, kind, records))
        np.testing.assert_allclose(*pair, 1e-4, 1e-5)


def test_a_sequence_of_padding_alone_becomes_zeros(tg: Any, rng: np.random.Generator) -> None:
    ours, theirs = encoders(tg)
    src, padding = rng.standard_normal((2, 3, 8)).astype(np.float32), np.array([[0, 0, 1], [1, 1, 1]], bool)
    pair = (encoded(tg, ours, src, padding, "bool", False), encoded(torch, theirs, src, padding, "bool", False))
    np.testing.assert_allclose(*pair, 1e-4, 1e-5)
    assert not pair[0][1].any()


def test_encoders_wait_for_nothing(tg: Any) -> None:
    ours, _ = encoders(tg)
    src, padding = tg.randn(4, 5, 8), tg.tensor(MASKS["behind"]).bool()
    before = tg.wire_stats().round_trips
    with tg.no_grad():
        ours(src, src_key_padding_mask=padding)
    assert tg.wire_stats().round_trips == before


@pytest.mark.parametrize(
    "options",
    [{"batch_first": False}, {"norm_first": True}, {"bias": False}, {"activation": torch.tanh}],
    ids="-".join,
)
def test_encoders_say_why_padding_is_kept(tg: Any, options: dict[str, Any]) -> None:
    told = []
    for t in (tg, torch):
        given = {**options, "activation": t.tanh} if "activation" in options else options
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            layer = t.nn.TransformerEncoderLayer(8, 2, 16, **{"batch_first": True, **given})
            model = t.nn.TransformerEncoder(layer, 1)
        told.append(([str(one.message) for one in noted], model.use_nested_tensor))
    assert told[0] == told[1] and not told[0][1] and len(told[0][0]) == 1


@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_attention_layers_take_nested_tensors(tg: Any, rng: np.random.Generator, layout: str) -> None:
    arrays = [rng.standard_normal((length, 8)).astype(np.float32) for length in (2, 3, 1)]
    attention, encoder = torch.nn.MultiheadAttention(8, 2, batch_first=True), encoders(tg)
    attention.eval()
    ours = same_state(tg, tg.nn.MultiheadAttention(8, 2, batch_first=True), attention).eval()
    with torch.no_grad(), tg.no_grad():
        plain = torch.nested.nested_tensor([torch.tensor(array) for array in arrays])
        nested = tg.nested.nested_tensor([tg.tensor(array) for array in arrays], layout=getattr(tg, layout))
        expected, weights = attention(plain, plain, plain)
        result, shown = ours(nested, nested, nested)
        pairs = [*zip(result.unbind(), expected.unbind(), strict=True), (shown, weights)]
        pairs += zip(ours(nested, nested, nested, need_weights=False)[0].unbind(), expected.unbind(), strict=True)
        pairs += zip(encoder[0](nested).unbind(), encoder[1](plain).unbind(), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_attention_layers_learn_on_nested_tensors(tg: Any, rng: np.random.Generator, layout: str) -> None:
    arrays = [rng.standard_normal((length, 8)).astype(np.float32) for length in (2, 4, 1)]
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    ours = same_state(tg, tg.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), layer)
    nested = tg.nested.nested_tensor([tg.tensor(array) for array in arrays], layout=getattr(tg, layout))
    (ours(nested).values().reshape(-1, 8) ** 3).sum().backward()
    sum((layer(torch.tensor(array)[None]) ** 3).sum() for array in arrays).backward()
    for mine, theirs in zip(ours.parameters(), layer.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), 1e-3, 1e-4)


def test_attention_of_nested_tensors_takes_no_masks(tg: Any) -> None:
    attention = tg.nn.MultiheadAttention(8, 2, batch_first=True)
    nested = tg.nested.nested_tensor([tg.ones(2, 8), tg.ones(1, 8)], layout=tg.jagged)
    for refused in (AssertionError, tg.TelegradError):
        with pytest.raises(refused, match="and no masks"):
            attention(nested, nested, nested, key_padding_mask=tg.zeros(2, 2).bool())
