"""Layers call functions of ``nn.functional`` by their names, so that programs may put others in their places."""

from __future__ import annotations

from typing import Any

import pytest
import torch

LAYERS = {
    "ReLU(), ReLU6(), ELU(), SELU(), CELU(), GELU(), SiLU(), Mish(), Softplus(), Softsign(), Tanhshrink()": "images",
    "Hardtanh(), Hardswish(), Hardsigmoid(), Hardshrink(), Softshrink(), LeakyReLU(), LogSigmoid(), PReLU()": "images",
    "RReLU(), Softmin(1), Softmax(1), LogSoftmax(1), Softmax2d(), GLU(), Threshold(0.1, 2.0), Dropout()": "images",
    "AlphaDropout(), FeatureAlphaDropout(), Dropout2d(), GroupNorm(2, 4), LayerNorm(8), RMSNorm(8)": "images",
    "LocalResponseNorm(2), PixelShuffle(2), PixelUnshuffle(2), Upsample(scale_factor=2), Unfold(2)": "images",
    "Linear(8, 2), BatchNorm2d(4), InstanceNorm2d(4), Conv2d(4, 4, 3), ConvTranspose2d(4, 4, 3)": "images",
    "Conv2d(4, 4, 3, padding=1, padding_mode='reflect'), MaxPool2d(2), AvgPool2d(2), LPPool2d(2, 2)": "images",
    "AdaptiveAvgPool2d(2), AdaptiveMaxPool2d(2), FractionalMaxPool2d(2, 3), ReflectionPad2d(1)": "images",
    "ReplicationPad2d(1), ConstantPad2d(1, 0.0), ZeroPad2d(1), CircularPad2d(1)": "images",
    "Conv1d(4, 4, 3), ConvTranspose1d(4, 4, 3), MaxPool1d(2), AvgPool1d(2), LPPool1d(2, 2)": "sequences",
    "AdaptiveAvgPool1d(2), AdaptiveMaxPool1d(2), BatchNorm1d(4), InstanceNorm1d(4), Dropout1d()": "sequences",
    "Conv3d(4, 4, 3), ConvTranspose3d(4, 4, 3), MaxPool3d(2), AvgPool3d(2), LPPool3d(2, 2)": "volumes",
    "AdaptiveAvgPool3d(2), AdaptiveMaxPool3d(2), FractionalMaxPool3d(2, 2), BatchNorm3d(4)": "volumes",
    "L1Loss(), MSELoss(), SmoothL1Loss(), HuberLoss(), BCEWithLogitsLoss(), KLDivLoss(reduction='sum')": "pairs",
    "SoftMarginLoss(), HingeEmbeddingLoss(), PoissonNLLLoss(), MultiLabelSoftMarginLoss(), CosineSimilarity()": "pairs",
    "PairwiseDistance(), Bilinear(8, 8, 2)": "pairs",
    "MultiheadAttention(4, 2), MultiheadAttention(4, 2, batch_first=True).eval()": "attended",
}
INPUTS = {
    "sequences": [(2, 4, 8)], "images": [(2, 4, 8, 8)], "volumes": [(2, 4, 4, 4, 4)], "pairs": [(3, 8)] * 2,
    "attended": [(5, 2, 4)] * 3,
}  # fmt: skip


def _first_calls(t: Any, texts: list[str], kind: str, patch: pytest.MonkeyPatch) -> list[str]:
    """Which function of ``nn.functional`` that programs know each layer calls first."""
    called: list[str] = []
    given = [t.full(sizes, 0.5) for sizes in INPUTS[kind]]
    layers = eval(f"[{', '.join(texts)}]", vars(t.nn).copy())  # noqa: S307 - the tests' own layers
    for name in PUBLIC:
        patch.setattr(t.nn.functional, name, _noting(called, name, getattr(t.nn.functional, name)))
    firsts = []
    for layer in layers:
        called.clear()
        layer(*given)
        firsts.append(called[0])
    return firsts


def _noting(called: list[str], name: str, function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return function(*args, **kwargs)

    return run


PUBLIC = [
    name
    for name in dir(torch.nn.functional)
    if name[0].islower() and not name.startswith(("has_torch", "handle_", "boolean_", "assert_", "overload"))
    and callable(getattr(torch.nn.functional, name)) and hasattr(torch.nn.functional, name)
    and getattr(getattr(torch.nn.functional, name), "__module__", "") != "typing"
    and name in torch.nn.functional.__dict__ and name not in ("function", "check_probability", "is_number")
]  # fmt: skip


@pytest.mark.parametrize("texts", LAYERS)
def test_layers_call_the_functions_that_pytorchs_call(tg: Any, texts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = LAYERS[texts]
    ours = _first_calls(tg, [texts], kind, monkeypatch)
    assert ours == _first_calls(torch, [texts], kind, monkeypatch)


def test_rectifiers_with_a_limit_are_limited_lines(tg: Any) -> None:
    layer = tg.nn.ReLU6(True)
    assert isinstance(layer, tg.nn.Hardtanh) and (layer.min_val, layer.max_val) == (0.0, 6.0)
    assert repr(layer) == repr(torch.nn.ReLU6(True))
