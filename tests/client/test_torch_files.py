"""Files of ``torch.save``: read without running anything, and written so that PyTorch loads them."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .torch_file_contents import everything, older, same


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pytorchs_files_load(tg: Any, tmp_path: Path, seed: int, protocol: int) -> None:
    theirs = everything(torch, np.random.default_rng(seed))
    torch.save(theirs, tmp_path / "f.pt", pickle_protocol=protocol)
    ours = tg.load(tmp_path / "f.pt")
    same(ours, theirs, tg)
    ours["tied"][0].zero_()
    assert ours["tied"][1].tolist() == [0, 0, 0], "it is one memory again"


def test_files_load_in_pytorch_and_here(tg: Any, tmp_path: Path, seed: int) -> None:
    tg.save(everything(tg, np.random.default_rng(seed)), tmp_path / "f.pt")
    theirs = torch.load(tmp_path / "f.pt", weights_only=True)
    reference = everything(torch, np.random.default_rng(seed))
    same(tg.load(tmp_path / "f.pt"), reference, tg)
    same(tg.load(tmp_path / "f.pt"), theirs, tg)
    assert list(theirs) == list(reference) and theirs["tied"][0] is theirs["tied"][1]


def test_state_dicts_go_both_ways_through_buffers(tg: Any) -> None:
    def model(nn: Any) -> Any:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    ours, theirs = model(tg.nn), model(torch.nn)
    buffer = io.BytesIO()
    torch.save(theirs.state_dict(), buffer)
    buffer.seek(0)
    assert str(ours.load_state_dict(tg.load(buffer))) == "<All keys matched successfully>"
    optimizer = tg.optim.Adam(ours.parameters())
    ours(tg.ones(2, 3)).sum().backward()
    optimizer.step()
    buffer = io.BytesIO()
    tg.save({"model": ours.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    theirs.load_state_dict(loaded["model"])
    torch.optim.Adam(theirs.parameters()).load_state_dict(loaded["optimizer"])
    for a, b in zip(ours.parameters(), theirs.parameters()):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_conjugate_and_shared_views(tg: Any, tmp_path: Path) -> None:
    base = torch.arange(6.0)
    theirs = {"conj": (torch.ones(2) * 1j).conj(), "whole": base, "part": base[2:4], "swapped": base.view(2, 3).t()}
    torch.save(theirs, tmp_path / "f")
    ours = tg.load(tmp_path / "f", weights_only=False)
    same(ours, theirs, tg)
    ours["whole"].zero_()
    assert ours["part"].tolist() == [0, 0]


def test_where_tensors_go(tg: Any, tmp_path: Path) -> None:
    path = tmp_path / "f"
    tg.save({"w": tg.ones(2)}, path)
    content = path.read_bytes()
    assert tg.load(path)["w"].device.type == "cpu"
    seen = []
    tg.load(path, map_location=lambda storage, location: seen.append(location) or storage)
    assert seen == ["cpu"]
    for places in ("cpu", tg.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: None):
        assert tg.load(path, map_location=places)["w"].tolist() == [1, 1]
    for places in ("cuda:7", {"cpu": "cuda:7"}, lambda storage, location: storage.cuda(7)):
        with pytest.raises(RuntimeError, match="cuda:7 is not there"):
            tg.load(path, map_location=places)
    archive = zipfile.ZipFile(io.BytesIO(content))
    with zipfile.ZipFile(path, "w") as changed:
        for info in archive.infolist():
            data = archive.read(info).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:9")
            changed.writestr(info, data)
    with pytest.raises(RuntimeError, match=r"cuda:9 is not there.*map_location='cpu'"):
        tg.load(path)
    assert tg.load(path, map_location={"cuda:9": "cpu"})["w"].tolist() == [1, 1]


def test_meta_tensors_go_both_ways_without_elements(tg: Any, tmp_path: Path) -> None:
    for writer, reader in ((tg, torch), (torch, tg), (tg, tg)):
        made = writer.empty(2, 3, dtype=writer.bfloat16, device="meta").t()
        writer.save({"a": made, "p": writer.nn.Linear(4, 1, device="meta").weight}, tmp_path / "f.pt")
        read = reader.load(tmp_path / "f.pt", map_location="cpu")
        told = [(one.device.type, tuple(one.shape), one.stride(), str(one.dtype)[-7:]) for one in read.values()]
        assert told == [("meta", (3, 2), (1, 3), "float16"), ("meta", (1, 4), (4, 1), "float32")]
        assert isinstance(read["p"], reader.nn.Parameter) and read["a"].requires_grad is False


def test_files_before_pytorch_1_6_are_read(tg: Any, tmp_path: Path, seed: int) -> None:
    obj = everything(torch, np.random.default_rng(seed))
    whole = older(obj, tmp_path / "f")
    same(tg.load(tmp_path / "f"), obj, tg)
    same(tg.load(io.BytesIO(whole)), obj, tg)
    base = torch.arange(6.0)
    older({"base": base, "view": base[2:4], "layer": torch.nn.Linear(3, 2).state_dict()}, tmp_path / "f")
    read = tg.load(tmp_path / "f", map_location="cpu")
    read["base"][2] = 9
    assert read["view"].tolist() == [9.0, 3.0], "views share memory again"
    assert tg.nn.Linear(3, 2).load_state_dict(read["layer"]).missing_keys == []
    older(torch.nn.Sequential(torch.nn.Linear(2, 1)), tmp_path / "f")
    with pytest.raises(pickle.UnpicklingError, match=r"has a torch\.nn\.modules\.container\.Sequential"):
        tg.load(tmp_path / "f")
