"""Tensors that share memory share it again after ``save`` and ``load``, here and in PyTorch, and after ``deepcopy``."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


def _described(tensors: dict[str, Any]) -> list[Any]:
    """What can be seen of tensors in a file: forms, places in memory, elements, and who shares memory with whom."""
    bases = {name: t.data_ptr() - t.storage_offset() * t.element_size() for name, t in tensors.items() if t.numel()}
    order = list(dict.fromkeys(bases.values()))
    return [
        (
            name, tuple(t.shape), tuple(t.stride()), t.storage_offset(), str(t.dtype).split(".")[-1], t.requires_grad,
            t.is_leaf, t.untyped_storage().nbytes(), name in bases and order.index(bases[name]),
            t.detach().double().numpy().tolist() if not t.is_complex() else t.tolist(),
        )
        for name, t in tensors.items()
    ]  # fmt: skip


def _views(t: Any, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    base = t.tensor(values)
    layer = t.nn.Linear(3, 2)
    with t.no_grad():
        layer.weight.copy_(t.tensor(values[0, :, 1:]))
    leaf = t.tensor(values[1], requires_grad=True)
    first, second = t.tensor(values[:, 0, 0]).unbind()
    return {
        "part": base[1, 1:], "base": base, "turned": base.permute(2, 0, 1), "steps": base[:, :, ::2],
        "spread": t.tensor(values[0, 0]).expand(3, 4), "tied": layer.weight.detach(), "parameter": layer.weight,
        "again": layer.weight.detach(), "leaf": leaf, "shown": leaf.detach(), "empty": t.zeros(0, 3), "first": first,
        "second": second, "alone": base[0].clone(), "half": base.half()[0].t(), "bits": base[0].to(t.uint16).t(),
        "complex": t.complex(base, base)[0, 1:],
    }  # fmt: skip


@pytest.fixture
def values(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.integers(0, 50, (2, 2, 4)).astype(np.float32)


def _through_file(source: Any, target: Any, tensors: Any) -> Any:
    file = io.BytesIO()
    source.save(tensors, file)
    file.seek(0)
    return target.load(file, weights_only=True)


def test_files_of_either_library_give_the_same_views_in_either(tg: Any, values: np.ndarray[Any, Any]) -> None:
    expected = _described(_through_file(torch, torch, _views(torch, values)))
    for source, target in ((tg, tg), (tg, torch), (torch, tg)):
        assert _described(_through_file(source, target, _views(source, values))) == expected, (source, target)


def test_older_files_follow_each_other_in_a_stream(tg: Any, values: np.ndarray[Any, Any]) -> None:
    told = []
    for source, target in ((torch, torch), (tg, tg), (tg, torch), (torch, tg)):
        views = _views(source, values)
        del views["bits"]  # PyTorch does not read its own older files of such types
        file = io.BytesIO()
        for saved in (views, [source.tensor(3), source.strided], "end"):
            source.save(saved, file, _use_new_zipfile_serialization=False)
        file.write(b"more")
        file.seek(0)
        first, (number, _), end = [target.load(file) for _ in range(3)]
        told.append((_described(first), number.item(), end, file.read()))
    assert told[0] == told[1] == told[2] == told[3]


def test_what_is_written_into_a_loaded_tensor_is_seen_by_all_that_share_its_memory(tg: Any) -> None:
    layer = tg.nn.Linear(4, 4, bias=False)
    model = tg.nn.ModuleDict({"one": layer, "two": tg.nn.Linear(4, 4, bias=False)})
    model["two"].weight = layer.weight
    state = _through_file(tg, tg, model.state_dict())
    state["one.weight"].fill_(7)
    assert state["two.weight"].tolist() == [[7.0] * 4] * 4
    rows = tg.zeros(3, 2)
    first, whole = _through_file(tg, tg, [rows[0], rows])
    first.add_(1)
    assert whole.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert not whole._is_view() and first._base is None


def test_a_view_is_written_with_all_of_its_memory_and_a_clone_without(tg: Any) -> None:
    sizes = []
    for tensor in (tg.zeros(50_000)[:3], tg.zeros(50_000)[:3].clone(), [tg.zeros(50_000)] * 2):
        file = io.BytesIO()
        tg.save(tensor, file)
        sizes.append(len(file.getvalue()) // 100_000)
    assert sizes == [2, 0, 2]


def test_layouts_are_written_as_pytorch_writes_them(tg: Any) -> None:
    for source, target in ((tg, torch), (torch, tg), (tg, tg)):
        loaded = _through_file(source, target, [source.strided, source.sparse_coo])
        assert loaded == [target.strided, target.sparse_coo]


def test_deep_copies_share_memory_as_what_was_copied_does(tg: Any, values: np.ndarray[Any, Any]) -> None:
    told = []
    for t in (torch, tg):
        base = t.tensor(values)
        alone, row, whole, turned = copy.deepcopy([t.tensor(values[0])[0], base[1], base, base.permute(2, 0, 1)])
        row.fill_(9)
        told.append((_described({"alone": alone, "row": row, "whole": whole, "turned": turned}), base.tolist()))
    assert told[0] == told[1]


SCRIPT = """
import io, sys, torch
state = torch.load(sys.argv[1])
state["momentum"].add_(1)
assert state["view"].tolist() == [2.0, 3.0], state
torch.save({"a": state["view"], "b": state["momentum"]}, sys.argv[1])
"""


def test_a_program_passes_views_on_to_pytorch_by_a_file(tg: Any, tmp_path: Path) -> None:
    memory = tg.arange(4.0)
    path = tmp_path / "state.pt"
    tg.save({"view": memory[1:3], "momentum": memory}, path)
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, env=environment)
    loaded = tg.load(path)
    loaded["b"].zero_()
    assert loaded["a"].tolist() == [0.0, 0.0]
