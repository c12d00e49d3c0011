"""Objects in files of ``torch.save``: what is saved and comes back, and that nothing a file names is run."""

from __future__ import annotations

import argparse
import enum
import math
import pickle
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from telegrad._tensor.torch_files.objects import Objects
from telegrad._tensor.torch_files.opcodes import interpret

from .torch_file_contents import names_for


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

    def doubled(self) -> Any:
        return self.weight * 2

    @property
    def run(self) -> Any:
        raise SystemExit("a property was read for a file")


class MadeOfValues(Unmade):
    """Has a ``__new__`` to which a file has values."""

    def __getnewargs__(self) -> tuple[int]:
        return (1,)


def _object_of(kind: type, **attributes: Any) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _with_attributes_for(name: str) -> bytes:
    """Return a pickle that names a thing of the program, and gives it an attribute."""
    return b"\x80\x02c" + name.replace(".", "\n").encode() + b"\n}X\x01\x00\x00\x00aK\x01sb."


def test_no_function_that_a_file_names_is_called(tg: Any, tmp_path: Path) -> None:
    torch.save({"obj": Evil()}, tmp_path / "f.pt")
    with pytest.raises(NotImplementedError, match="the file calls exec, and no function that a file names is called"):
        tg.load(tmp_path / "f.pt", weights_only=False)
    tg.save({"obj": _object_of(MadeOfValues)}, tmp_path / "g.pt")
    with pytest.raises(NotImplementedError, match="made of values by its own __new__, which is not called"):
        tg.load(tmp_path / "g.pt", weights_only=False)
    names = names_for(Objects(lambda name, value: True))
    with pytest.raises(tg.errors.ArgumentError, match="that the file did not make"):
        interpret(_with_attributes_for("pathlib.Path"), names, "the file")
    with pytest.raises(NotImplementedError, match=r"has a antigravity\.geohash"):
        interpret(b"\x80\x02cantigravity\ngeohash\n.", names, "the file")


def test_an_object_whose_class_makes_its_objects_gets_its_attributes(tg: Any, tmp_path: Path) -> None:
    torch.save({"obj": _object_of(Unmade, weight=torch.ones(2))}, tmp_path / "f.pt")
    read = tg.load(tmp_path / "f.pt", weights_only=False)["obj"]
    assert type(read) is Unmade and read.weight.tolist() == [1, 1]


def test_methods_of_saved_objects_are_bound_to_them(tg: Any, tmp_path: Path) -> None:
    obj = _object_of(Unmade, weight=torch.ones(2))
    torch.save({"obj": obj, "call": obj.doubled}, tmp_path / "f.pt")
    read = tg.load(tmp_path / "f.pt", weights_only=False)
    assert read["call"].__self__ is read["obj"] and read["call"]().tolist() == [2, 2]
    layer = tg.nn.Linear(2, 1)
    tg.save({"call": layer.forward}, tmp_path / "g.pt")
    call = tg.load(tmp_path / "g.pt", weights_only=False)["call"]
    assert tg.equal(call(tg.ones(2)), layer(tg.ones(2)))


class NamesAttribute:
    """Is pickled as an attribute of another object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> Any:
        return getattr, (_object_of(Unmade), self._name)


@pytest.mark.parametrize("name", ["run", "__class__", "__dict__", "absent"])
def test_no_attribute_but_a_method_is_read_for_a_file(tg: Any, tmp_path: Path, name: str) -> None:
    torch.save({"obj": NamesAttribute(name)}, tmp_path / "f.pt")
    with pytest.raises(NotImplementedError, match="the file calls getattr"):
        tg.load(tmp_path / "f.pt", weights_only=False)


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


def test_what_no_module_names_is_not_saved(tg: Any, tmp_path: Path) -> None:
    for thing in (lambda: None, type("Inside", (), {})(), (i for i in ())):
        with pytest.raises(tg.errors.ArgumentTypeError, match=r"'a\.f' is .*save a state_dict"):
            tg.save({"a": {"f": thing}}, tmp_path / "f.pt")


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
