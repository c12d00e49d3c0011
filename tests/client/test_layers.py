"""Layers that compute what PyTorch's compute, and their initial values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from .twins import mlp


def _copied(tg: Any, theirs: torch.nn.Module, ours: Any) -> None:
    """Give our module the values of theirs."""
    result = ours.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert repr(result) == "<All keys matched successfully>"


def _default(name: str) -> Any:
    return lambda nn: getattr(nn, name)()


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "Linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "Linear-3d": (lambda nn: nn.Linear(4, 3, bias=False), (2, 5, 4)),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), (3, 4)),
    "LayerNorm-2d": (lambda nn: nn.LayerNorm((3, 4), eps=1e-3, bias=False), (2, 3, 4)),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), (3, 4)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), (3, 4, 5)),
    "Flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 2)), (3, 4)),
    "Identity": (lambda nn: nn.Identity(3, unused=1), (2, 3)),
    "PReLU": (lambda nn: nn.PReLU(3), (2, 3, 4)),
    "Softmax": (lambda nn: nn.Softmax(dim=1), (2, 3)),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(-1), (2, 3)),
    "Softmin": (lambda nn: nn.Softmin(-1), (2, 3)),
    "GLU": (lambda nn: nn.GLU(), (2, 4)),
    "GELU-tanh": (lambda nn: nn.GELU("tanh"), (2, 4)),
    "LeakyReLU": (lambda nn: nn.LeakyReLU(0.2), (2, 4)),
    "ELU": (lambda nn: nn.ELU(0.7), (2, 4)),
    "CELU": (lambda nn: nn.CELU(alpha=0.7), (2, 4)),
    "Hardtanh": (lambda nn: nn.Hardtanh(-0.5, 0.3), (2, 4)),
    "Softplus": (lambda nn: nn.Softplus(2.0), (2, 4)),
    "Threshold": (lambda nn: nn.Threshold(0.1, 20.0), (2, 4)),
    "Hardshrink": (lambda nn: nn.Hardshrink(), (2, 4)),
    "Softshrink": (lambda nn: nn.Softshrink(0.3), (2, 4)),
    "Dropout-eval": (lambda nn: nn.Dropout(0.9).eval(), (2, 4)),
    "Sequential": (mlp, (3, 6)),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", batch_first=True), (2, 5, 8),
    ),
    "TransformerEncoder-norm-first": (
        lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True), 2,
        nn.LayerNorm(8)), (5, 2, 8),
    ),
    **{
        name: (_default(name), (3, 4))
        for name in ("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Sigmoid", "Tanh", "LogSigmoid", "Softsign", "Tanhshrink",
                     "Hardsigmoid", "Hardswish", "GELU")
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", LAYERS)
def test_layer_computes_and_differentiates_as_pytorchs(tg: Any, name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    theirs, ours = make(torch.nn), make(tg.nn)
    _copied(tg, theirs, ours)
    x = torch.randn(shape, requires_grad=True)
    mine = tg.tensor(x.detach().numpy(), requires_grad=True)
    expected, found = theirs(x), ours(mine)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=2e-6)
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    (found * tg.tensor(weights.numpy())).sum().backward()
    pairs = [(mine, x), *zip(ours.parameters(), theirs.parameters(), strict=True)]
    for a, b in pairs:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_embedding_looks_up_and_keeps_padding_zero(tg: Any) -> None:
    theirs, ours = torch.nn.Embedding(7, 3, padding_idx=-1), tg.nn.Embedding(7, 3, padding_idx=-1)
    assert ours.padding_idx == 6
    assert ours.weight[6].tolist() == [0.0, 0.0, 0.0]
    _copied(tg, theirs, ours)
    where = [[1, 6, 2], [1, 1, 0]]
    expected, found = theirs(torch.tensor(where)), ours(tg.tensor(where))
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    expected.sum().backward()
    found.sum().backward()
    np.testing.assert_array_equal(ours.weight.grad.numpy(), theirs.weight.grad.numpy())


def test_embedding_of_a_given_table_is_frozen(tg: Any) -> None:
    table = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    layer = tg.nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer(tg.tensor([1])).tolist() == [[3.0, 4.0]]


LOSSES: dict[str, tuple[Any, str]] = {
    "CrossEntropyLoss": (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), "classes"),
    "CrossEntropyLoss-ignore": (lambda nn: nn.CrossEntropyLoss(ignore_index=1, reduction="sum"), "classes"),
    "NLLLoss": (lambda nn: nn.NLLLoss(reduction="none"), "classes"),
    "MSELoss": (lambda nn: nn.MSELoss(), "values"), "L1Loss": (lambda nn: nn.L1Loss(reduction="sum"), "values"),
    "SmoothL1Loss": (lambda nn: nn.SmoothL1Loss(beta=0.5), "values"),
    "HuberLoss": (lambda nn: nn.HuberLoss(delta=0.7), "values"),
    "BCEWithLogitsLoss": (lambda nn: nn.BCEWithLogitsLoss(), "unit"),
    "KLDivLoss": (lambda nn: nn.KLDivLoss(reduction="batchmean"), "unit"),
    "MSELoss-old": (lambda nn: nn.MSELoss(size_average=False, reduce=True), "values"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", LOSSES)
def test_loss_computes_and_differentiates_as_pytorchs(tg: Any, name: str) -> None:
    torch.manual_seed(0)
    make, kind = LOSSES[name]
    target = {"classes": torch.randint(0, 3, (5,)), "values": torch.randn(5, 3), "unit": torch.rand(5, 3)}[kind]
    x = torch.randn(5, 3, requires_grad=True)
    mine = tg.tensor(x.detach().numpy(), requires_grad=True)
    expected, found = make(torch.nn)(x, target), make(tg.nn)(mine, tg.tensor(target.numpy()))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    expected.sum().backward()
    found.sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention_is_pytorchs(tg: Any, batch_first: bool, need_weights: bool, masked: bool) -> None:
    torch.manual_seed(0)
    theirs, ours = (nn.MultiheadAttention(8, 2, batch_first=batch_first) for nn in (torch.nn, tg.nn))
    _copied(tg, theirs, ours)
    shape, other = ((3, 4, 8), (3, 5, 8)) if batch_first else ((4, 3, 8), (5, 3, 8))
    q, k, v = torch.randn(shape), torch.randn(other), torch.randn(other)
    options: dict[str, Any] = {"need_weights": need_weights}
    mine = dict(options)
    if masked:
        padding, hidden = torch.zeros(3, 5, dtype=torch.bool), torch.ones(4, 5).triu(2).bool()
        padding[1, 3:] = True
        options |= {"key_padding_mask": padding, "attn_mask": hidden}
        mine |= {"key_padding_mask": tg.tensor(padding.numpy()), "attn_mask": tg.tensor(hidden.numpy())}
    expected = theirs(q, k, v, **options)
    found = ours(*(tg.tensor(t.numpy()) for t in (q, k, v)), **mine)
    np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-5, atol=1e-6)
    assert (found[1] is None) == (expected[1] is None)
    if need_weights:
        np.testing.assert_allclose(found[1].detach().numpy(), expected[1].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_multihead_attention_takes_the_hint_that_a_mask_is_causal(tg: Any) -> None:
    torch.manual_seed(0)
    theirs, ours = torch.nn.MultiheadAttention(8, 2, batch_first=True), tg.nn.MultiheadAttention(8, 2, batch_first=True)
    _copied(tg, theirs, ours)
    x, hidden = torch.randn(3, 5, 8), torch.ones(5, 5).triu(1).bool()
    for need_weights in (False, True):
        expected, _ = theirs(x, x, x, attn_mask=hidden, is_causal=True, need_weights=need_weights)
        mine = tg.tensor(x.numpy())
        options = {"attn_mask": tg.tensor(hidden.numpy()), "is_causal": True, "need_weights": need_weights}
        found, _ = ours(mine, mine, mine, **options)
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_drops_and_scales_only_in_training(tg: Any) -> None:
    tg.manual_seed(1)
    layer, x = tg.nn.Dropout(0.25), tg.ones(10000)
    found = layer(x).numpy()
    assert set(np.unique(found).tolist()) == {0.0, np.float32(4 / 3)}
    assert abs((found == 0).mean() - 0.25) < 0.03
    tg.manual_seed(1)
    assert np.array_equal(layer(x).numpy(), found)
    assert layer.eval()(x) is x


@pytest.mark.parametrize(
    ("name", "shape", "channels"),
    [("Dropout2d", (5, 30, 2, 3), 150), ("Dropout1d", (30, 4), 30), ("Dropout3d", (4, 30, 2, 2, 2), 120)],
)
def test_dropout_of_channels_drops_whole_ones(tg: Any, name: str, shape: tuple[int, ...], channels: int) -> None:
    found = getattr(tg.nn, name)(0.5)(tg.ones(shape)).numpy().reshape(channels, -1)
    assert all(len(set(channel)) == 1 for channel in found.tolist())
    assert set(np.unique(found).tolist()) == {0.0, 2.0}


def test_dropout_gradient_has_the_same_mask(tg: Any) -> None:
    x = tg.ones(1000, requires_grad=True)
    y = tg.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())


def _within(found: Any, low: float, high: float, deviation: float) -> None:
    array = found.detach().numpy()
    assert low <= array.min()
    assert array.max() <= high
    assert array.std() == pytest.approx(deviation, rel=0.05)


def test_default_initial_values_have_pytorchs_distributions(tg: Any) -> None:
    tg.manual_seed(3)
    linear = tg.nn.Linear(100, 200)
    bound = 0.1
    _within(linear.weight, -bound, bound, bound / math.sqrt(3))
    assert linear.weight.abs().max().item() > 0.099
    _within(linear.bias, -bound, bound, linear.bias.std().item())
    _within(tg.nn.Embedding(100, 100).weight, -9, 9, 1.0)
    norm = tg.nn.LayerNorm(5)
    assert (norm.weight.tolist(), norm.bias.tolist()) == ([1.0] * 5, [0.0] * 5)


def test_initializers_have_the_papers_spread(tg: Any) -> None:
    tg.manual_seed(4)
    init, weight = tg.nn.init, tg.empty(200, 100, requires_grad=True)
    glorot, he = math.sqrt(2 / 300), math.sqrt(2 / 100)
    _within(init.xavier_uniform_(weight), -math.sqrt(3) * glorot, math.sqrt(3) * glorot, glorot)
    _within(init.xavier_normal_(weight, gain=2.0), -9, 9, 2 * glorot)
    _within(init.kaiming_uniform_(weight, nonlinearity="relu"), -math.sqrt(3) * he, math.sqrt(3) * he, he)
    _within(init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu"), -9, 9, math.sqrt(2 / 200))
    _within(init.trunc_normal_(weight, 0.0, 1.0, -1.0, 1.0), -1, 1, 0.5396)
    assert init.constant_(weight, 3.0) is weight
    assert weight.mean().item() == 3.0
    assert init.eye_(weight).sum().item() == 100
    assert weight.is_leaf
    assert weight.requires_grad
    with pytest.raises(RuntimeError, match="fewer than 2 dimensions"):
        init.xavier_uniform_(tg.ones(3))


def _with_property(nn: Any) -> Any:
    class Doubled(nn.Linear):  # type: ignore[misc, name-defined]
        @property
        def weight(self) -> Any:
            if "weight" not in self._parameters:
                raise AttributeError("weight")
            return self._parameters["weight"] * 2

    return Doubled(3, 2)


def _with_plain_attribute(nn: Any) -> Any:
    layer = nn.Linear(3, 2)
    weight = layer.weight
    del layer.weight
    layer.weight = weight * 3
    return layer


def _parametrized(nn: Any) -> Any:
    class Negative(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, weight: Any) -> Any:
            return -weight

    layer = nn.Linear(3, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", Negative())
    return layer


def _with_entry_replaced(nn: Any) -> Any:
    layer = nn.LayerNorm(3)
    layer._parameters["weight"] = layer.weight.detach() + 1
    return layer


@pytest.mark.parametrize("make", [_with_property, _with_plain_attribute, _parametrized, _with_entry_replaced])
def test_layers_compute_with_the_weight_that_their_attribute_is(tg: Any, rng: np.random.Generator, make: Any) -> None:
    array, layer = rng.standard_normal((4, 3), np.float32), make(tg.nn)
    x, weight, bias = (torch.tensor(a) for a in (array, layer.weight.detach().numpy(), layer.bias.detach().numpy()))
    is_norm = isinstance(layer, tg.nn.LayerNorm)
    functional = torch.nn.functional
    expected = functional.layer_norm(x, (3,), weight, bias) if is_norm else functional.linear(x, weight, bias)
    np.testing.assert_allclose(layer(tg.tensor(array)).detach().numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
