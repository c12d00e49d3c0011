"""Layers for sequences, images and volumes, and memory formats, beside PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "Conv1d": (lambda nn: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    "Conv2d": (lambda nn: nn.Conv2d(3, 4, (3, 2), padding=(1, 0), dilation=2), (2, 3, 7, 8)),
    "Conv2d-same": (lambda nn: nn.Conv2d(3, 4, 4, padding="same", bias=False), (2, 3, 7, 8)),
    "Conv2d-valid": (lambda nn: nn.Conv2d(3, 4, 3, padding="valid"), (3, 7, 8)),
    "Conv2d-reflect": (lambda nn: nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="reflect"), (2, 3, 7, 8)),
    "Conv2d-circular-same": (lambda nn: nn.Conv2d(3, 4, 4, padding="same", padding_mode="circular"), (2, 3, 7, 8)),
    "Conv3d": (lambda nn: nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 6)),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5)),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(3, 4, 3, 2, padding=1, dilation=2, bias=False), (2, 3, 5, 4)),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2), (1, 2, 3, 3, 3)),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(3, 2, 1), (2, 3, 9)),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (2, 3, 8, 7)),
    "MaxPool3d": (lambda nn: nn.MaxPool3d(2, dilation=2), (1, 2, 5, 5, 5)),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3, 2, 1), (2, 3, 9)),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(2, count_include_pad=False, padding=1, ceil_mode=True), (2, 3, 7, 7)),
    "AvgPool3d": (lambda nn: nn.AvgPool3d(2, divisor_override=3), (1, 2, 4, 4, 4)),
    "LPPool1d": (lambda nn: nn.LPPool1d(2, 3), (2, 3, 9)),
    "LPPool2d": (lambda nn: nn.LPPool2d(3, 2, stride=1), (2, 3, 6, 6)),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(4), (2, 3, 9)),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((None, 1)), (2, 3, 6, 7)),
    "AdaptiveAvgPool3d": (lambda nn: nn.AdaptiveAvgPool3d(1), (1, 2, 4, 4, 4)),
    "AdaptiveMaxPool1d": (lambda nn: nn.AdaptiveMaxPool1d(5), (2, 3, 9)),
    "AdaptiveMaxPool2d": (lambda nn: nn.AdaptiveMaxPool2d((3, None)), (2, 3, 7, 4)),
    "AdaptiveMaxPool3d": (lambda nn: nn.AdaptiveMaxPool3d(2), (1, 2, 3, 4, 5)),
    "Unfold": (lambda nn: nn.Unfold((2, 3), dilation=2, padding=1, stride=(1, 2)), (2, 3, 7, 8)),
    "Fold": (lambda nn: nn.Fold((5, 6), (2, 3), padding=1), (2, 12, 36)),
}  # fmt: skip


def _made(tg: Any, name: str) -> tuple[Any, Any]:
    make, _ = LAYERS[name]
    theirs, ours = make(torch.nn), make(tg.nn)
    ours.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_layer_computes_and_differentiates_as_pytorchs(tg: Any, name: str) -> None:
    torch.manual_seed(0)
    theirs, ours = _made(tg, name)
    x = torch.rand(LAYERS[name][1], requires_grad=True)
    mine = tg.tensor(x.detach().numpy(), requires_grad=True)
    expected, found = theirs(x), ours(mine)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=2e-6)
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    (found * tg.tensor(weights.numpy())).sum().backward()
    pairs = [(mine, x), *zip(ours.parameters(), theirs.parameters(), strict=True)]
    for a, b in pairs:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_shows_itself_as_pytorchs_does(tg: Any, name: str) -> None:
    theirs, ours = _made(tg, name)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_weights_start_within_their_bound(tg: Any) -> None:
    tg.manual_seed(3)
    for layer, fan_in in ((tg.nn.Conv2d(16, 64, 3), 16 * 9), (tg.nn.ConvTranspose2d(64, 16, 3), 16 * 9)):
        bound = 1 / math.sqrt(fan_in)
        weight = layer.weight.detach().numpy()
        assert 0.98 * bound < np.abs(weight).max() <= bound
        assert weight.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert np.abs(layer.bias.detach().numpy()).max() <= bound


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_maxima_are_put_back_to_where_they_were(tg: Any, dims: int) -> None:
    x = torch.randn((2, 3) + (6,) * dims)
    pool, unpool = (lambda nn: getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)), f"MaxUnpool{dims}d"
    expected = getattr(torch.nn, unpool)(2)(*pool(torch.nn)(x))
    found = getattr(tg.nn, unpool)(2)(*pool(tg.nn)(tg.tensor(x.numpy())))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_transposed_convolution_gives_the_size_that_is_asked_for(tg: Any) -> None:
    layer = tg.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    x = tg.ones(1, 2, 5, 5)
    assert layer(x, output_size=(10, 9)).shape == (1, 3, 10, 9)
    with pytest.raises(ValueError, match=r"requested an output size of \[12, 9\], but 12 must be in \[9, 10\]"):
        layer(x, output_size=(12, 9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 2}, "in_channels must be divisible"), ({"groups": 0}, "groups must be a positive"),
        ({"groups": "a"}, "groups must be an integer, not 'a'"),
        ({"padding_mode": "mirror"}, "padding_mode must be one of"),
        ({"stride": (1, 2, 3)}, "stride must be one number or 2"),
        ({"padding": "same", "stride": 2}, "Conv2d: padding='same' is not supported for strided convolutions"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tg: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        tg.nn.Conv2d(3, 4, 3, **options)


@pytest.mark.parametrize("size", [2.5, "ab", (2, None)])
def test_a_size_that_is_no_integer_is_refused(tg: Any, size: Any) -> None:
    for layer in (lambda: tg.nn.Conv2d(3, 4, size), lambda: tg.nn.MaxUnpool2d(size)):
        with pytest.raises(TypeError, match="kernel_size must be one integer or 2, got"):
            layer()


def _strides(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.stride())


def test_memory_formats_lay_out_elements_as_in_pytorch(tg: Any) -> None:
    theirs = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    ours = tg.tensor(theirs.numpy())
    for lib, x in ((torch, theirs), (tg, ours)):
        y = x.contiguous(memory_format=lib.channels_last)
        assert _strides(y) == (60, 1, 15, 3)
        assert y.is_contiguous(memory_format=lib.channels_last)
        assert not y.is_contiguous()
        assert not x.is_contiguous(memory_format=lib.channels_last)
        assert y.contiguous(memory_format=lib.channels_last) is y
        assert _strides(x.to(memory_format=lib.channels_last)) == (60, 1, 15, 3)
        assert _strides(x.to(lib.float64, memory_format=lib.channels_last)) == (60, 1, 15, 3)
        assert _strides(y.clone()) == (60, 1, 15, 3)
        assert _strides(y.clone(memory_format=lib.contiguous_format)) == (60, 20, 5, 1)
        assert _strides(lib.empty_like(y)) == (60, 1, 15, 3)
        assert _strides(lib.zeros_like(y, memory_format=lib.contiguous_format)) == (60, 20, 5, 1)
        assert _strides(lib.empty(2, 3, 4, 5, memory_format=lib.channels_last)) == (60, 1, 15, 3)
        assert _strides(y + 1) == (60, 1, 15, 3)
        assert y.tolist() == theirs.tolist()
        assert not x.reshape(2, 3, 20).is_contiguous(memory_format=lib.channels_last)
    with pytest.raises(ValueError, match="channels_last is for tensors of 4 dimensions"):
        ours.reshape(6, 20).contiguous(memory_format=tg.channels_last)
    with pytest.raises(TypeError, match=r"memory_format must be one such as telegrad\.channels_last"):
        ours.to(memory_format="channels_last")


def test_a_module_in_channels_last_computes_the_same(tg: Any) -> None:
    model = tg.nn.Sequential(
        tg.nn.Conv2d(3, 4, 3), tg.nn.ReLU(), tg.nn.MaxPool2d(2), tg.nn.Flatten(), tg.nn.Linear(36, 2)
    )
    x = tg.randn(2, 3, 8, 8)
    expected = model(x).detach().numpy()
    moved = model.to(memory_format=tg.channels_last)
    assert _strides(moved[0].weight) == (27, 1, 9, 3)
    pictures = moved[0](x.contiguous(memory_format=tg.channels_last))
    assert pictures.is_contiguous(memory_format=tg.channels_last)
    np.testing.assert_allclose(moved(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    moved(x).sum().backward()
    assert moved[0].weight.grad is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x: lib.conv2d(x, lib.ones(4, 3, 3, 3)), lambda lib, x: lib.conv2d(x[0], lib.ones(4, 3, 3, 3)),
        lambda lib, x: lib.conv_transpose2d(x, lib.ones(3, 4, 3, 3)),
        lambda lib, x: lib.nn.functional.max_pool2d(x, 2), lambda lib, x: lib.nn.functional.avg_pool2d(x, 2),
        lambda lib, x: lib.nn.functional.max_pool1d(x[0], 2), lambda lib, x: lib.nn.functional.unfold(x, 2),
        lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, (1, 1)),
        lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, (2, 2)),
        lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x, (2, 2)),
    ],
)  # fmt: skip
def test_gradients_have_pytorchs_names(tg: Any, call: Any) -> None:
    expected = call(torch, torch.ones(2, 3, 8, 8, requires_grad=True)).grad_fn
    found = call(tg, tg.ones(2, 3, 8, 8, requires_grad=True)).grad_fn
    assert found.name() == expected.name()
    assert str(found).startswith(f"<{type(expected).__name__} object at 0x")
