"""tg.save and tg.load on raw tensors, and other readers and writers of the same format."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import stat
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from telegrad._tensor import safetensors_files
from telegrad._tensor.safetensors_files import RawTensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError

SEED = 77
Point = namedtuple("Point", "x")


class Color(IntEnum):
    RED = 3


def to_raw(obj: Any) -> RawTensor | None:
    if not isinstance(obj, torch.Tensor):
        return None
    flat = obj.detach().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return RawTensor(dtypes.BY_NAME[str(obj.dtype).removeprefix("torch.")], tuple(obj.shape), data)


def from_raw(raw: RawTensor) -> torch.Tensor:
    dtype = getattr(torch, raw.dtype.name)
    if not raw.data:
        return torch.empty(raw.shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw.data), dtype=dtype).reshape(raw.shape)


def save(obj: Any, path: Path) -> None:
    safetensors_files.save(obj, path, to_raw=to_raw)


def load(path: Path) -> Any:
    return safetensors_files.load(path, from_raw=from_raw)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype is b.dtype
            and a.shape == b.shape
            and torch.equal(*map(_comparable, (a, b)))
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def random_tensor(rng: random.Random) -> torch.Tensor:
    dtype = getattr(torch, rng.choice(list(dtypes.BY_NAME)))
    shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return (torch.randn(shape, generator=generator) * 100).to(dtype)


def random_structure(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return random_tensor(rng)
    if kind < 6:
        return rng.choice([None, True, 0, -(2**80), 0.1, -0.0, math.inf, 1e-320, 2 - 3j, "", "ü \"'\\ \n\0", "nan"])
    items = [random_structure(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return items
    return tuple(items) if kind == 7 else dict(zip(["a", 0, "a.b", None, 1.5, "__metadata__"], items, strict=False))


def test_random_structures_come_back_as_they_were(tmp_path: Path) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    for _ in range(100):
        structure = {"x": random_structure(rng), "y": [random_structure(rng)]}
        save(structure, tmp_path / "f")
        assert same(structure, load(tmp_path / "f"))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)], ids=str)
def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path: Path, dtype: dtypes.DType, shape: Any) -> None:
    size = math.prod(shape) * dtype.itemsize
    data = np.random.default_rng(SEED).integers(0, 2, size, dtype=np.uint8).tobytes()
    raw = RawTensor(dtype, shape, memoryview(data))
    safetensors_files.save([raw], tmp_path / "f", to_raw=lambda obj: obj if isinstance(obj, RawTensor) else None)
    (loaded,) = safetensors_files.load(tmp_path / "f", from_raw=lambda raw: raw)
    assert (loaded.dtype, loaded.shape, bytes(loaded.data)) == (dtype, shape, data)


def test_a_single_tensor_and_a_single_number_can_be_saved(tmp_path: Path) -> None:
    save(torch.arange(3), tmp_path / "f")
    assert same(load(tmp_path / "f"), torch.arange(3))
    save(3.5, tmp_path / "f")
    assert load(tmp_path / "f") == 3.5


def test_nan_and_subclasses_of_scalars_are_kept_by_value(tmp_path: Path) -> None:
    scalars = {"n": math.nan, "c": complex(math.nan, -math.inf), "e": Color.RED, "f": np.float32(0.5), "i": np.int64(4)}
    save(scalars, tmp_path / "f")
    loaded = load(tmp_path / "f")
    assert math.isnan(loaded["n"]) and math.isnan(loaded["c"].real) and loaded["c"].imag == -math.inf
    assert [(type(loaded[key]), loaded[key]) for key in "efi"] == [(int, 3), (float, 0.5), (int, 4)]


def test_a_state_dict_is_plain_to_other_readers(tmp_path: Path) -> None:
    state = dict(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).bfloat16().state_dict())
    save(state, tmp_path / "f")
    elsewhere = safetensors.torch.load_file(tmp_path / "f")
    assert same(state, {name: elsewhere.pop(name) for name in state}) and not elsewhere
    assert same(state, load(tmp_path / "f"))


def test_nested_tensors_lie_under_their_path(tmp_path: Path) -> None:
    checkpoint = {"model": OrderedDict(w=torch.ones(2)), "optimizer": {"state": {0: {"m": torch.zeros(2)}}}, "epoch": 3}
    save(checkpoint, tmp_path / "f")
    assert sorted(safetensors.torch.load_file(tmp_path / "f")) == ["model.w", "optimizer.state.0.m"]
    assert load(tmp_path / "f")["optimizer"]["state"][0]["m"].tolist() == [0, 0]


def test_complex_doubles_are_pairs_to_other_readers(tmp_path: Path) -> None:
    tensor = torch.randn(3, dtype=torch.complex128, generator=torch.Generator().manual_seed(SEED))
    save({"z": tensor}, tmp_path / "f")
    assert torch.equal(safetensors.torch.load_file(tmp_path / "f")["z"], torch.view_as_real(tensor))
    assert same(load(tmp_path / "f"), {"z": tensor})


def test_files_of_other_writers_load_as_flat_dicts(tmp_path: Path) -> None:
    tensors = {"b": torch.ones(2, 3).bfloat16(), "a.c": torch.arange(4), "e": torch.empty(0), "z": torch.ones(2) * 1j}
    for metadata in (None, {"format": "pt", "note": "x"}):
        safetensors.torch.save_file(tensors, tmp_path / "f", metadata=metadata)
        loaded = load(tmp_path / "f")
        assert same({name: loaded.pop(name) for name in tensors}, tensors) and not loaded


def test_equal_paths_get_different_names(tmp_path: Path) -> None:
    a, b, c, d, e = (torch.full((1,), i) for i in range(5))
    structure = {"a.b": a, "a": {"b": b}, "a.b#1": c, 1: d, "1": e}
    save(structure, tmp_path / "f")
    assert same(load(tmp_path / "f"), structure)


def test_a_tensor_that_occurs_twice_is_one_tensor_again(tmp_path: Path) -> None:
    tied = torch.ones(3)
    save({"embedding": tied, "head": [tied]}, tmp_path / "f")
    loaded = load(tmp_path / "f")
    assert loaded["embedding"] is loaded["head"][0]
    assert list(safetensors.torch.load_file(tmp_path / "f")) == ["embedding"]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"a": [{1, 2}]}, "'a.0' is a set; only dicts"),
        (b"x", "the object is a bytes"),
        (Point(1), "the object is a Point"),
        (torch.nn.Linear(1, 1), r"is a Linear.*save its state_dict\(\)"),
        ({("a", 1): 2}, "the object has a key of type tuple"),
    ],
    ids=["set", "bytes", "namedtuple", "module", "tuple key"],
)
def test_what_cannot_be_saved_is_named_and_leaves_no_file(tmp_path: Path, obj: Any, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        save(obj, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_only_structures_that_contain_themselves_are_refused(tmp_path: Path) -> None:
    loop: dict[str, Any] = {"a": []}
    loop["a"].append(loop)
    with pytest.raises(ArgumentError, match=r"'a\.0' contains itself"):
        save(loop, tmp_path / "f")
    twice = [1]
    save([twice, twice], tmp_path / "f")
    assert load(tmp_path / "f") == [[1], [1]]


def test_bytes_that_do_not_fit_the_shape_are_refused(tmp_path: Path) -> None:
    raw = RawTensor(dtypes.float32, (2, 3), b"1234")
    with pytest.raises(ArgumentError, match=r"'w' is float32\[2,3\], 24 bytes, but came with 4"):
        safetensors_files.save({"w": raw}, tmp_path / "f", to_raw=lambda obj: obj if obj is raw else None)


def test_a_failed_save_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save([1], tmp_path / "f")

    def full(*args: Any, **kwargs: Any) -> None:
        raise safetensors.SafetensorError("no space left on device")

    monkeypatch.setattr(safetensors_files, "serialize_file", full)
    with pytest.raises(OSError, match=r"cannot write .*no space left"):
        save([2], tmp_path / "f")
    assert load(tmp_path / "f") == [1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
    with pytest.raises(FileNotFoundError):
        save([2], tmp_path / "missing" / "f")


def test_files_get_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save([torch.ones(1)], tmp_path / "f")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_saving_through_a_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "f")
    save([1], tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and load(tmp_path / "f") == [1]


@pytest.mark.parametrize("legacy", [False, True])
def test_pickles_are_refused_with_a_reason(tmp_path: Path, legacy: bool) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "f.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(NotSupportedError, match=r"f\.pt' is a pickle, as torch\.save writes it; .* runs whatever code"):
        load(tmp_path / "f.pt")
    (tmp_path / "f.pkl").write_bytes(pickle.dumps([1]))
    with pytest.raises(NotSupportedError, match="is a pickle"):
        load(tmp_path / "f.pkl")


@pytest.mark.parametrize("content", [b"", b"abc", b"\x10" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"{}x"], ids=repr)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ArgumentError, match="f' is not a safetensors file: "):
        load(tmp_path / "f")


def test_truncated_files_are_refused_at_every_length(tmp_path: Path) -> None:
    save({"w": torch.ones(4), "n": 3}, tmp_path / "f")
    whole = (tmp_path / "f").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "g").write_bytes(whole[:length])
        with pytest.raises(ArgumentError, match="is not a safetensors file"):
            load(tmp_path / "g")


def test_missing_files_are_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


@pytest.mark.parametrize("call", [load, lambda path: save([1], path)], ids=["load", "save"])
def test_what_is_no_path_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a path, got a int"):
        call(3)


def test_types_that_telegrad_lacks_are_named(tmp_path: Path) -> None:
    safetensors.torch.save_file({"w": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "f")
    with pytest.raises(NotSupportedError, match=r"'w' in .* is F8_E4M3, which telegrad does not have"):
        load(tmp_path / "f")


DAMAGED_TREES = [
    '{}', '{"set": [1]}', '{"dict": [1]}', '{"dict": [[{"list": []}, 1]]}', '{"complex": ["x"]}', '{"tensor": ["w"]}',
    '{"tensor": "v"}', '{"list": [' * 20_000, '{"list": [' * 3000 + "]}" * 3000,
]  # fmt: skip
DAMAGED = ["", "[", "3", "{}", '{"version": 1}', '{"version": 1, "complex128": ["w"], "tree": {"tensor": "w"}}']
DAMAGED += ['{"version": 1, "complex128": [], "tree": ' + tree + "}" for tree in DAMAGED_TREES]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_structures_are_refused(tmp_path: Path, text: str) -> None:
    safetensors.torch.save_file({"w": torch.ones(3)}, tmp_path / "f", metadata={"telegrad": text})
    with pytest.raises(ArgumentError, match=r"damaged|should be complex128\[\], but has 12 bytes"):
        load(tmp_path / "f")


def test_newer_versions_are_refused(tmp_path: Path) -> None:
    text = json.dumps({"version": 2, "forest": []})
    safetensors.torch.save_file({"w": torch.ones(3)}, tmp_path / "f", metadata={"telegrad": text})
    with pytest.raises(NotSupportedError, match="is of version 2, this telegrad reads 1"):
        load(tmp_path / "f")
