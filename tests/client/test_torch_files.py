"""Files of ``torch.save``: read without running anything, and written so that PyTorch loads them."""

from __future__ import annotations

import argparse
import enum
import io
import math
import pickle
import random
import struct
import zipfile
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from telegrad import TelegradError
from telegrad._tensor.torch_files.objects import Objects
from telegrad._tensor.torch_files.opcodes import interpret
from telegrad._tensor.torch_files.reading import TorchNames

from .twins import OURS


def same(ours: Any, theirs: Any, tg: Any) -> None:
    """Compare structures by type, and tensors by all that files keep of them."""
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, tuple(ours.shape), ours.requires_grad) == (
            OURS[theirs.dtype], tuple(theirs.shape), theirs.requires_grad
        )  # fmt: skip
        assert isinstance(ours, tg.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        wide = theirs.detach().resolve_conj().resolve_neg()
        wide = wide.float() if wide.dtype is torch.bfloat16 else wide
        np.testing.assert_array_equal(ours.detach().numpy(force=True), wide.numpy())
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        assert getattr(ours, "_metadata", None) == getattr(theirs, "_metadata", None)
        for key, value in theirs.items():
            same(ours[key], value, tg)
    elif isinstance(theirs, torch.Size):
        assert isinstance(ours, tg.Size) and tuple(ours) == tuple(theirs)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b, tg)
    elif isinstance(theirs, (torch.dtype, torch.device)):
        assert str(ours).removeprefix("telegrad.") == str(theirs).removeprefix("torch.")
    else:
        assert type(ours) is type(theirs) and ours == theirs


DTYPES = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool".split()  # noqa: SIM905


def everything(t: Any, rng: np.random.Generator) -> dict[Any, Any]:
    """A structure with all that a file may have, of either library."""
    tensors = {name: t.tensor(rng.integers(0, 2, (2, 3))).to(getattr(t, name)) for name in DTYPES}
    tied = t.tensor(rng.standard_normal(3))
    return {
        "tensors": tensors, "parameter": t.nn.Parameter(t.ones(2)), "frozen": t.nn.Parameter(t.ones(2), False),
        "leaf": t.ones(2, requires_grad=True), "scalar": t.tensor(1.5), "empty": t.ones(0, 3), "tied": [tied, tied],
        "view": t.arange(12).reshape(3, 4)[1:, ::2].t(), "size": t.Size([1, 2]), "dtype": t.bfloat16,
        "devices": [t.device("cpu"), t.device("cuda:1"), t.device("cuda")], "ordered": OrderedDict(b=1, a=[2]),
        "numbers": [0, -1, 255, 256, 70000, 2**31, -(2**31), 2**63, -(2**80), 0.1, float("inf"), 1 - 2j, True, None],
        1: {"a", "b"}, (1, "k"): 2, "bytes": [b"\x00\xff", bytearray(b"abc")], "text": "é\n" * 200,
        "nested": ((), (1,), (1, (2, [3, {}]))),
    }  # fmt: skip


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


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('the file was run')",)


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (Evil(), "builtins.exec"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        ({"a": [Path("x")]}, r"pathlib\."),
        (print, "builtins.print"),
        (torch.ones(2).to(torch.float8_e4m3fn), r"torch\.float8_e4m3fn"),
    ],
    ids=["code", "module", "path", "function", "type"],
)
def test_what_else_a_file_holds_is_refused_by_name(tg: Any, tmp_path: Path, obj: Any, name: str) -> None:
    torch.save({"w": torch.ones(1), "obj": obj}, tmp_path / "f.pt")
    for options in ({}, {"weights_only": True}):
        with pytest.raises(
            pickle.UnpicklingError, match=rf"f\.pt' has a {name}.*; with weights_only=True only tensors"
        ):
            tg.load(tmp_path / "f.pt", **options)


class Unmade:
    """Has its own ``__new__``, which a file must not run."""

    def __new__(cls) -> Any:
        raise SystemExit("a method was run for a file")


def _with_attributes_for(name: str) -> bytes:
    """Return a pickle that names a thing of the program, and gives it an attribute."""
    return b"\x80\x02c" + name.replace(".", "\n").encode() + b"\n}X\x01\x00\x00\x00aK\x01sb."


def test_no_function_that_a_file_names_is_called(tg: Any, tmp_path: Path) -> None:
    torch.save({"obj": Evil()}, tmp_path / "f.pt")
    with pytest.raises(NotImplementedError, match="the file calls exec, and no function that a file names is called"):
        tg.load(tmp_path / "f.pt", weights_only=False)
    tg.save({"obj": object.__new__(Unmade)}, tmp_path / "g.pt")
    with pytest.raises(NotImplementedError, match="made by its own __new__, which is not called"):
        tg.load(tmp_path / "g.pt", weights_only=False)
    names = _names(Objects(lambda name, value: True))
    with pytest.raises(tg.errors.ArgumentError, match="that the file did not make"):
        interpret(_with_attributes_for("pathlib.Path"), names, "the file")
    with pytest.raises(NotImplementedError, match=r"has a antigravity\.geohash"):
        interpret(b"\x80\x02cantigravity\ngeohash\n.", names, "the file")


class Color(enum.Enum):
    RED = "r"


@dataclass
class Settings:
    rate: float
    color: Color
    weight: Any = None


class Lists(dict[str, Any]):
    pass


class Point(NamedTuple):
    x: int
    y: Any


def test_objects_are_saved_and_come_back(tg: Any, tmp_path: Path) -> None:
    layer = tg.nn.Linear(3, 2)
    model = tg.nn.Sequential(layer, tg.nn.BatchNorm1d(2))
    model.again = [layer]
    saved = {
        "model": model, "args": argparse.Namespace(rate=0.1, sizes=[1, 2]), "point": Point(1, tg.ones(2)),
        "settings": Settings(0.5, Color.RED, tg.zeros(2)), "lists": Lists({"a": [1]}), "path": Path("a/b"),
        "array": np.arange(6.0).reshape(2, 3), "texts": np.array(["a", "bc"]), "big": np.arange(3, dtype=">i4"),
        "type": tg.nn.ReLU, "function": math.sqrt, "random": np.random.get_state(), "range": range(3),
    }  # fmt: skip
    tg.save(saved, tmp_path / "f.pt")
    read = tg.load(tmp_path / "f.pt", weights_only=False)
    x = tg.ones(4, 3)
    assert tg.equal(read["model"].eval()(x), model.eval()(x))
    assert read["model"].again[0] is read["model"][0]
    assert vars(read["args"]) == vars(saved["args"]) and read["path"] == saved["path"] and read["range"] == range(3)
    assert type(read["point"]) is Point and read["point"].y.tolist() == [1, 1]
    assert read["settings"].color is Color.RED and read["settings"].weight.tolist() == [0, 0]
    assert type(read["lists"]) is Lists and read["lists"] == {"a": [1]}
    assert read["type"] is tg.nn.ReLU and read["function"] is math.sqrt
    for name in ("array", "texts", "big"):
        assert read[name].dtype == saved[name].dtype.newbyteorder("=") and read[name].tolist() == saved[name].tolist()
    np.random.set_state(read["random"])
    assert torch.load(tmp_path / "f.pt", weights_only=False)["args"].sizes == [1, 2]


def test_classes_that_the_program_has_noted_are_read(tg: Any, tmp_path: Path) -> None:
    tg.save(Settings(0.5, Color.RED), tmp_path / "f.pt")
    with pytest.raises(NotImplementedError, match="Settings; with weights_only=True"):
        tg.load(tmp_path / "f.pt")
    with tg.serialization.safe_globals([Settings, Color]):
        assert tg.load(tmp_path / "f.pt").rate == 0.5


class Marked(torch.Tensor):
    """PyTorch's twin of a class of tensors of a program, which files name by this name."""


def test_tensors_of_a_programs_class_come_back_as_such(tg: Any, tmp_path: Path, monkeypatch: Any) -> None:
    ours = type("Marked", (tg.Tensor,), {"__module__": __name__, "__qualname__": "Marked"})
    kinds = {tg: ours, torch: Marked}
    for writer, reader in ((tg, torch), (torch, tg), (tg, tg)):
        tensor, parameter = writer.ones(2, 3).as_subclass(kinds[writer]), writer.nn.Parameter(writer.ones(2, 3))
        for made in (tensor, parameter):
            made.note, made.more = "left", [writer.zeros(2)]
        monkeypatch.setitem(globals(), "Marked", kinds[writer])
        writer.save([tensor, parameter], tmp_path / "f.pt")
        monkeypatch.setitem(globals(), "Marked", kinds[reader])
        read = reader.load(tmp_path / "f.pt", weights_only=False)
        assert [type(one) for one in read] == [kinds[reader], reader.nn.Parameter]
        for one in read:
            assert one.tolist() == [[1.0] * 3] * 2
            assert one.note == "left" and one.more[0].tolist() == [0.0, 0.0]


def test_meta_tensors_go_both_ways_without_elements(tg: Any, tmp_path: Path) -> None:
    for writer, reader in ((tg, torch), (torch, tg), (tg, tg)):
        made = writer.empty(2, 3, dtype=writer.bfloat16, device="meta").t()
        writer.save({"a": made, "p": writer.nn.Linear(4, 1, device="meta").weight}, tmp_path / "f.pt")
        read = reader.load(tmp_path / "f.pt", map_location="cpu")
        told = [(one.device.type, tuple(one.shape), one.stride(), str(one.dtype)[-7:]) for one in read.values()]
        assert told == [("meta", (3, 2), (1, 3), "float16"), ("meta", (1, 4), (4, 1), "float32")]
        assert isinstance(read["p"], reader.nn.Parameter) and read["a"].requires_grad is False


def test_what_no_module_names_is_not_saved(tg: Any, tmp_path: Path) -> None:
    for thing in (lambda: None, type("Inside", (), {})(), (i for i in ())):
        with pytest.raises(tg.errors.ArgumentTypeError, match=r"'a\.f' is .*save a state_dict"):
            tg.save({"a": {"f": thing}}, tmp_path / "f.pt")


def _names(objects: Objects) -> TorchNames:
    return TorchNames(
        "the file", lambda layout, grad: layout, lambda data, grad: data, lambda *parts: parts, tuple, objects
    )


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
        names = _names(Objects(lambda name, value: rng.random() < 0.5))
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


def _older(obj: Any, path: Path) -> bytes:
    """Write a file in the form before PyTorch 1.6, and return its bytes."""
    torch.save(obj, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


def test_files_before_pytorch_1_6_are_read(tg: Any, tmp_path: Path, seed: int) -> None:
    obj = everything(torch, np.random.default_rng(seed))
    whole = _older(obj, tmp_path / "f")
    same(tg.load(tmp_path / "f"), obj, tg)
    same(tg.load(io.BytesIO(whole)), obj, tg)
    base = torch.arange(6.0)
    _older({"base": base, "view": base[2:4], "layer": torch.nn.Linear(3, 2).state_dict()}, tmp_path / "f")
    read = tg.load(tmp_path / "f", map_location="cpu")
    read["base"][2] = 9
    assert read["view"].tolist() == [9.0, 3.0], "views share memory again"
    assert tg.nn.Linear(3, 2).load_state_dict(read["layer"]).missing_keys == []
    _older(torch.nn.Sequential(torch.nn.Linear(2, 1)), tmp_path / "f")
    with pytest.raises(pickle.UnpicklingError, match=r"has a torch\.nn\.modules\.container\.Sequential"):
        tg.load(tmp_path / "f")


def test_files_before_pytorch_1_6_are_refused_where_they_end_too_early(tg: Any, tmp_path: Path) -> None:
    whole = _older({"w": torch.ones(4), "n": torch.arange(3)}, tmp_path / "f")
    for length in (*range(16, len(whole), 7), len(whole) - 1):
        with pytest.raises(ValueError, match="is damaged"):
            tg.load(io.BytesIO(whole[:length]))
    for version in (1000, 1002):
        changed = whole.replace((1001).to_bytes(2, "little"), version.to_bytes(2, "little"), 1)
        with pytest.raises(NotImplementedError, match=f"a file of version {version}"):
            tg.load(io.BytesIO(changed))


def test_keys_of_storages_that_are_no_list_are_refused(tg: Any, tmp_path: Path) -> None:
    whole = _older({"w": torch.ones(4)}, tmp_path / "f")
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


def test_what_cannot_be_saved_is_named_and_leaves_no_file(tg: Any, tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    for obj, message in (
        ({"a": [tg.ones(2), lambda: None]}, r"'a\.1' is the function .*save a state_dict\(\)"),
        (tg.nn.Sequential(tg.nn.ReLU(), type("Own", (tg.nn.Module,), {})()), r"is the type Own"),
    ):
        with pytest.raises(TypeError, match=message):
            tg.save(obj, tmp_path / "f")
    with pytest.raises(ValueError, match="'0' contains itself"):
        tg.save(loop, tmp_path / "f")
    with pytest.raises(TypeError, match="expected a path or a file, got a int"):
        tg.save([], 3)
    assert list(tmp_path.iterdir()) == []


def test_counters_and_numbers_of_numpy(tg: Any, tmp_path: Path) -> None:
    torch.save([Counter("aab"), frozenset([1])], tmp_path / "f")
    assert tg.load(tmp_path / "f") == [Counter("aab"), frozenset([1])]
    tg.save({"loss": np.float32(0.5)}, tmp_path / "f")
    assert tg.load(tmp_path / "f") == {"loss": 0.5}
