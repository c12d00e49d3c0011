"""torch::nn of C++: modules with parameters, the usual layers, and functions with options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from .conftest import FOLDER


@pytest.fixture
def networks(kernel_cache: str, tg: Any) -> Any:
    """The extension of ``networks.cpp``, in the session of ``tg``."""
    from telegrad.utils.cpp_extension import load

    return load("test_networks", [FOLDER / "networks.cpp"], extra_cflags=["-O0"])


def test_modules_have_names_and_compute_with_their_parameters(networks: Any, tg: Any, rng: np.random.Generator) -> None:
    assert networks.names() == ["scale", "first.weight", "first.bias", "last.weight", "steps"]
    sizes = {"scale": (2,), "first.weight": (64, 3), "first.bias": (64,), "last.weight": (2, 64)}
    state = {name: torch.tensor(rng.standard_normal(size), dtype=torch.float32) for name, size in sizes.items()}
    x = torch.tensor(rng.standard_normal((5, 3)), dtype=torch.float32)
    hidden = F.relu(F.linear(x, state["first.weight"], state["first.bias"]))
    expected = F.log_softmax(F.linear(hidden, state["last.weight"]) * state["scale"], 1)
    ours = {name: tg.from_numpy(tensor.numpy()) for name, tensor in state.items()}
    result = networks.run(tg.from_numpy(x.numpy()), ours, False).numpy()
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert not np.allclose(networks.run(tg.from_numpy(x.numpy()), ours, True).numpy(), result), "dropout"


def test_parameters_begin_as_pytorchs(networks: Any, tg: Any, seed: int) -> None:
    """Weights are uniform up to Xavier's bound, biases up to the one of inputs, embeddings normal."""
    tg.manual_seed(seed)
    weight, bias, embedding = (tensor.numpy() for tensor in networks.initial(300, 200))
    bounds = np.sqrt(6 / 500), 1 / np.sqrt(300)
    for values, bound in zip((weight, bias), bounds):
        assert 0.9 * bound < abs(values).max() <= bound
    assert weight.shape == (200, 300) and abs(weight.std() - bounds[0] / np.sqrt(3)) < 0.02 * bounds[0]
    assert abs(embedding.std() - 1) < 0.02 and abs(embedding.mean()) < 0.03


def test_layers_follow_each_other(networks: Any, tg: Any, rng: np.random.Generator) -> None:
    x = torch.tensor(rng.standard_normal((2, 3, 6, 6)), dtype=torch.float32)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, stride=(2, 1)), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Softmax(1),
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.25)
        expected = network(x).numpy()
    np.testing.assert_allclose(networks.sequence(tg.from_numpy(x.numpy())).numpy(), expected, rtol=1e-4, atol=1e-6)


def test_functions_take_their_options(networks: Any, tg: Any, rng: np.random.Generator) -> None:
    x = torch.tensor(rng.standard_normal((2, 3, 6, 6)), dtype=torch.float64)
    w = torch.tensor(rng.standard_normal((4, 3, 3, 3)), dtype=torch.float64)
    classes = torch.tensor([0, 2])
    expected = [
        F.conv2d(x, w, stride=2, padding=(1, 0)), F.conv_transpose2d(F.conv2d(x, w), w), F.max_pool2d(x, 2, 1),
        F.avg_pool2d(x, (2, 3)), F.pad(x, (1, 2), value=3), F.pad(x, (1, 1, 1, 1), "reflect"), F.unfold(x, 2, stride=2),
        F.softmax(x, 1), F.leaky_relu(x, 0.2), F.elu(x, 0.7), F.gelu(x, approximate="tanh"), F.softplus(x, 2),
        F.layer_norm(x, (6,), eps=1e-3), F.group_norm(x, 3), F.normalize(x, 1, 2),
        F.mse_loss(x, x * 2, reduction="sum"), F.huber_loss(x, x * 3, delta=0.5), F.l1_loss(x, -x, reduction="none"),
        F.cross_entropy(x.flatten(1), classes, label_smoothing=0.1), F.cosine_similarity(x, x + 1, dim=2), F.relu(x),
    ]  # fmt: skip
    results = networks.functions(*[tg.from_numpy(tensor.numpy()) for tensor in (x, w, classes)])
    assert len(results) == len(expected)
    for place, (ours, theirs) in enumerate(zip(results, expected)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9, err_msg=f"function {place}")
