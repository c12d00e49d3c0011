"""Files of ``torch.save`` that are damaged, or are none: each is refused, and nothing outside of them is read."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from telegrad import TelegradError
from telegrad._tensor.torch_files.objects import Objects
from telegrad._tensor.torch_files.opcodes import interpret

from .torch_file_contents import names_for, older


def test_random_damage_is_refused_or_harmless(seed: int) -> None:
    """Pickles with random bytes in them give plain values, or one of our errors."""
    rng = random.Random(seed)
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2, 3), "o": OrderedDict(a=[1, (2.0, "x")]), "s": {1}}, buffer)
    whole = zipfile.ZipFile(buffer).read("archive/data.pkl")
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        names = names_for(Objects(lambda name, value: rng.random() < 0.5))
        try:
            interpret(bytes(data[: rng.randrange(1, len(data) + 1)]), names, "the file")
        except TelegradError:
            refused += 1
    assert refused > 2000


def _archive(path: Path, data: bytes, storage: bytes = b"", **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("x/data.pkl", data)
        archive.writestr("x/data/0", storage)
    return path


def _tensor_pickle(numel: int, offset: int, size: int, stride: int) -> bytes:
    numbers = [b"J" + struct.pack("<i", number) for number in (numel, offset, size, stride)]
    storage = b"((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpu" + numbers[0] + b"tQ"
    call = b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + numbers[1] + numbers[2] + b"\x85" + numbers[3]
    return b"\x80\x02" + call + b"\x85\x89NtR."


def test_tensors_outside_of_their_storage_are_refused(tg: Any, tmp_path: Path) -> None:
    path, four = tmp_path / "f", np.arange(4, dtype="<f4").tobytes()
    assert tg.load(_archive(path, _tensor_pickle(4, 1, 2, 2), four)).tolist() == [1, 3]
    for numbers in ((4, 0, 5, 1), (4, 1, 2, 3), (4, -1, 2, 1), (4, 3, 2, -1), (4, 0, 2**31 - 1, 2**31 - 1)):
        with pytest.raises(ValueError, match="does not lie inside of its storage"):
            tg.load(_archive(path, _tensor_pickle(*numbers), four))
    with pytest.raises(ValueError, match="has 16 bytes, expected 4000"):
        tg.load(_archive(path, _tensor_pickle(1000, 0, 1, 1), four))
    with pytest.raises(NotImplementedError, match="is compressed"):
        tg.load(_archive(path, _tensor_pickle(4, 0, 4, 1), four, compression=zipfile.ZIP_DEFLATED))
    deep = b"\x80\x02})" + b"\x85" * 100_000 + b"Ns."
    with pytest.raises(ValueError, match="nested too deeply"):
        tg.load(_archive(path, deep))


def test_damaged_and_foreign_archives(tg: Any, tmp_path: Path) -> None:
    torch.save(torch.ones(3), tmp_path / "f")
    whole = (tmp_path / "f").read_bytes()
    (tmp_path / "g").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged zip archive"):
        tg.load(tmp_path / "g")
    with zipfile.ZipFile(tmp_path / "g", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(NotImplementedError, match=r"that torch\.save did not write"):
        tg.load(tmp_path / "g")
    with pytest.raises(NotImplementedError, match=r"is not one of torch\.save"):
        tg.load(io.BytesIO(pickle.dumps([1])))


def test_files_before_pytorch_1_6_are_refused_where_they_end_too_early(tg: Any, tmp_path: Path) -> None:
    whole = older({"w": torch.ones(4), "n": torch.arange(3)}, tmp_path / "f")
    for length in (*range(16, len(whole), 7), len(whole) - 1):
        with pytest.raises(ValueError, match="is damaged"):
            tg.load(io.BytesIO(whole[:length]))
    for version in (1000, 1002):
        changed = whole.replace((1001).to_bytes(2, "little"), version.to_bytes(2, "little"), 1)
        with pytest.raises(NotImplementedError, match=f"a file of version {version}"):
            tg.load(io.BytesIO(changed))


def test_keys_of_storages_that_are_no_list_are_refused(tg: Any, tmp_path: Path) -> None:
    whole = older({"w": torch.ones(4)}, tmp_path / "f")
    begin = whole.rindex(b"\x80\x02]")  # the last pickle, of a list
    for keys in (5, None, "0"):
        with pytest.raises(ValueError, match="for the keys of its storages"):
            tg.load(io.BytesIO(whole[:begin] + pickle.dumps(keys, 2)))


@pytest.mark.parametrize(("content", "error"), [(b"", EOFError), (b"\x00garbage", pickle.UnpicklingError)])
def test_errors_of_unreadable_files_are_those_that_programs_catch(
    tg: Any, tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    (tmp_path / "f").write_bytes(content)
    for load in (tg.load, torch.load):
        with pytest.raises(error):
            load(tmp_path / "f")
