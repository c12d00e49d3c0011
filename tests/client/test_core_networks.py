"""Functions of networks by the names and the order of parameters of the compiled core, which ``torch`` has too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad._programs.private import core_functions, top_level

X, W, B, MEAN, VAR = "x", "w", "b", "mean", "var"
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "batch_norm": [(X, W, B, MEAN, VAR, False, 0.1, 1e-5, True), (X, None, None, None, None, True, 0.1, 1e-5, False)],
    "instance_norm": [("image", None, None, None, None, True, 0.1, 1e-3, True)],
    "layer_norm": [(X, [6]), (X, [6], W, B, 1e-3, False)],
    "group_norm": [("image", 2), ("image", 2, None, None, 1e-3, True)],
    "rms_norm": [(X, [6], W, 1e-4)],
    "binary_cross_entropy_with_logits": [(X, "share"), (X, "share", None, VAR, 1), (X, "share", W, None, 2)],
    "cosine_embedding_loss": [(X, "other", "sign"), (X, "other", "sign", 0.1, 2)],
    "hinge_embedding_loss": [(X, "signs"), (X, "signs", 2.0, 1)],
    "kl_div": [(X, "share"), (X, "share", 1), (X, "other", 2)],
    "margin_ranking_loss": [(X, "other", "signs"), (X, "other", "signs", 0.5, 2)],
    "poisson_nll_loss": [(X, "share", True, True, 1e-8, 1), (X, "share", True, False, 1e-8, 0)],
    "triplet_margin_loss": [(X, "other", "share"), (X, "other", "share", 0.5, 1.0, 1e-6, True, 2)],
    "ctc_loss": [
        ("scores", [[1, 2], [2, 2]], [5, 4], [2, 1], 0, 1, True),
        ("scores", [[1, 2], [2, 2]], [5, 4], [2, 1]),
    ],
    "adaptive_max_pool1d": [("image", 2)],
    "fake_quantize_per_tensor_affine": [(X, 0.1, 2, -4, 7)],
    "fake_quantize_per_channel_affine": [(X, "steps", "zeros", 1, -2, 1)],
    "embedding": [(X, [0, 3, 3]), (X, [0, 3, 3], 3, False, False)],
    "dropout": [(X, 0.5, False)],
    "feature_alpha_dropout": [("image", 0.5, False)],
    "rrelu": [(X, 0.1, 0.3, False)],
    "threshold": [(X, 0.1, -5.0)],
    "selu": [(X,)],
    "celu": [(X, 0.5)],
}
CASES = [(name, number) for name, listed in CALLS.items() for number in range(len(listed))]


def _values(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    values = {name: draw.standard_normal((4, 6)) for name in (X, "other")}
    share = draw.uniform(0.1, 0.9, (4, 6))
    values |= {W: draw.standard_normal(6), B: draw.standard_normal(6), MEAN: draw.standard_normal(6)}
    values |= {VAR: draw.uniform(0.5, 1.5, 6), "share": share, "signs": np.sign(share - 0.5)}
    values |= {"sign": np.array([1.0, -1.0, 1.0, -1.0]), "zeros": np.zeros(6, np.int32)}
    values["steps"] = draw.uniform(0.5, 1.5, 6).astype(np.float32)
    scores = draw.standard_normal((5, 2, 4))
    values["scores"] = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return values | {"image": draw.standard_normal((2, 4, 5))}


def _run(t: Any, function: Any, call: tuple[Any, ...], seed: int) -> tuple[list[Any], Any]:
    """Return the results as arrays, and the gradient of their sum by the first argument."""
    values = _values(seed)
    made = [
        t.tensor(values[given]) if isinstance(given, str)
        else t.tensor(given) if isinstance(given, list) and len(given) > 1 else given
        for given in call
    ]  # fmt: skip
    made[0].requires_grad_()
    results = function(*made)
    results = results if isinstance(results, tuple) else (results,)
    results[0].sum().backward()
    return [result.detach().numpy() for result in results], made[0].grad.numpy()


@pytest.mark.parametrize(("name", "number"), CASES)
@pytest.mark.parametrize("place", [top_level, core_functions], ids=["torch", "_VF"])
def test_functions_of_networks_take_the_arguments_of_the_core(
    tg: Any, place: Any, name: str, number: int, seed: int
) -> None:
    call = CALLS[name][number]
    expected, gradient = _run(torch, getattr(torch, name), call, seed)
    found, ours = _run(tg, getattr(place, name), call, seed)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours, gradient, rtol=1e-6, atol=1e-9)


def test_every_listed_function_is_a_function_of_torch_and_is_there() -> None:
    for name in core_functions.OF_NETWORKS:
        assert callable(getattr(torch, name)) and callable(getattr(top_level, name))
