"""The meta device: tensors with a shape and no elements, in the client alone, without a connection."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance.scope import reason
from conformance.shapes import check
from telegrad.errors import DeviceError, NotSupportedError
from tests.ops.database import op_db

_WITHOUT_A_SERVER = """
import telegrad as tg
with tg.device("meta"):
    model = tg.nn.Sequential(tg.nn.Conv2d(3, 8, 3), tg.nn.BatchNorm2d(8), tg.nn.Flatten(), tg.nn.Linear(288, 10))
    x, y = tg.randn(4, 3, 8, 8), tg.zeros(4, dtype=tg.int64)
    listed = tg.tensor([[1, 2], [3, 4]])
optimizer = tg.optim.AdamW(model.parameters())
loss = tg.nn.functional.cross_entropy(model(x), y)
loss.backward()
optimizer.step()
assert [p.grad.shape == p.shape and p.grad.is_meta for p in model.parameters()] == [True] * 6
assert loss.shape == () and listed.dtype is tg.int64 and listed.device == tg.device("meta")
(grad,) = tg.autograd.grad(model(x).square().sum(), [model[0].weight], create_graph=True)
assert grad.shape == (8, 3, 3, 3) and grad.requires_grad
tg.set_default_device("meta")
assert tg.ones(2).is_meta and tg.get_default_device() == "meta" and tg.device("meta").index is None
tg.set_default_device(None)
from telegrad._session.current import has_session
assert not has_session()
"""


def test_models_train_on_the_meta_device_without_a_connection() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_A_SERVER], check=True, timeout=120)


def test_shapes_on_the_meta_device_are_those_of_pytorchs_results(tg: Any, seed: int) -> None:
    entries = [info for info in op_db if not reason(info.name)]
    chosen = random.Random(seed).sample(entries, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = {f"{info.name} {info.variant_test_name}": check(info) for info in chosen}
    assert {entry: outcome for entry, outcome in outcomes.items() if outcome not in ("passed", "data")} == {}


def test_results_lie_in_memory_as_on_a_device(tg: Any) -> None:
    def computed(device: str) -> list[Any]:
        x = tg.empty(2, 3, 4, device=device).transpose(0, 2)
        k = tg.empty(5, 3, 1, 1, device=device)
        images = tg.empty(2, 3, 4, 4, device=device).to(memory_format=tg.channels_last)
        results = [
            x,
            x + 1,
            x.sum(1, True),
            x @ x.mT,
            x[1:, None],
            tg.cat([x, x], -1),
            x.reshape(-1),
            x.expand(2, 4, 3, 2),
        ]
        results += [
            tg.nn.functional.conv2d(images, k),
            images.relu(),
            x.to(tg.int8),
            *x.topk(1),
            x.softmax(-1),
            x.permute(2, 1, 0).cumsum(0),
        ]
        return [(t.shape, t.stride(), t.storage_offset(), t.dtype, t.is_contiguous()) for t in results]

    assert computed("meta") == computed("cpu")


def test_files_are_loaded_onto_the_meta_device(tg: Any, tmp_path: Path) -> None:
    state = tg.nn.Linear(3, 2).state_dict()
    tg.save(state, tmp_path / "a.pt")
    tg.save(state, tmp_path / "a.safetensors")
    for name in ("a.pt", "a.safetensors"):
        loaded = tg.load(tmp_path / name, map_location="meta")
        assert [(key, value.shape, value.is_meta) for key, value in loaded.items()] == [
            ("weight", (2, 3), True), ("bias", (2,), True),
        ]  # fmt: skip
    assert tg.rand(2, device="meta", generator=tg.Generator()).is_meta


def test_tensors_go_to_the_meta_device_and_none_comes_back(tg: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=(2, 3)).astype("f4")
    x = tg.tensor(values, requires_grad=True)
    moved = x.to("meta")
    assert (
        moved.is_meta
        and moved.requires_grad
        and moved.shape == (2, 3)
        and x.numpy(force=True).tolist() == values.tolist()
    )
    assert repr(moved.detach()) == repr(torch.empty(2, 3, device="meta"))
    assert repr(tg.empty(2, dtype=tg.int64, device="meta")) == repr(torch.empty(2, dtype=torch.int64, device="meta"))
    assert tg.zeros_like(x, device="meta").is_meta and tg.ones_like(moved, device="cpu").tolist() == [[1.0] * 3] * 2
    with pytest.raises(NotSupportedError, match="Cannot copy out of meta tensor; no data"):
        moved.cpu()
    with pytest.raises(NotSupportedError, match="no data"):
        x.detach().copy_(moved)
    assert moved.detach().copy_(x.detach()).is_meta
    for asked in (moved.sum().item, moved.tolist, moved.nonzero, lambda: bool(moved.sum()), lambda: moved[moved > 0]):
        with pytest.raises(NotSupportedError, match="no elements"):
            asked()


def test_operands_of_the_meta_device_stand_beside_numbers_only(tg: Any) -> None:
    x, own = tg.ones(2, 3, device="meta"), tg.ones(2, 3, device="cpu")
    assert (x * tg.tensor(2.0, device="cpu")).is_meta and x[tg.tensor([0, 0, 1], device="cpu")].shape == (3, 3)
    for refused in (lambda: x + own, lambda: own @ x.T, lambda: tg.cat([own, x]), lambda: own.add_(x)):
        with pytest.raises(DeviceError, match="at least two devices"):
            refused()


def test_a_module_of_the_meta_device_is_given_memory(tg: Any, rng: np.random.Generator) -> None:
    state = {"weight": tg.tensor(rng.normal(size=(2, 3)).astype("f4")), "bias": tg.zeros(2)}
    layer = tg.nn.Linear(3, 2, device="meta")
    layer.load_state_dict(state, assign=True)
    x = tg.tensor(rng.normal(size=(4, 3)).astype("f4"))
    np.testing.assert_allclose(layer(x).numpy(force=True), x.numpy() @ state["weight"].numpy().T, rtol=1e-5)
    assert isinstance(layer.weight, tg.nn.Parameter) and layer.weight.requires_grad
    empty = tg.nn.Linear(3, 2, device="meta").to_empty(device="cpu")
    empty.load_state_dict(state)
    assert empty(x).tolist() == layer(x).tolist()
    with tg.device("meta"):
        assert tg.nn.Linear(3, 2).to(tg.float64).weight.dtype is tg.float64
