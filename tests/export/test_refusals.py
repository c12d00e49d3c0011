"""What cannot be exported is refused, with the line that is to blame, and files that hold no valid program are too."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telegrad_protocol.errors import NotSupportedError, ProgramError, TelegradError

from .modules import mlp


def _module(tg: Any, forward: Callable[..., Any]) -> Any:
    class Net(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = tg.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Net()


def _reads(self: Any, x: Any) -> Any:
    return x * (x.sum().item() * 2)


def _branches(self: Any, x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def _counts(self: Any, x: Any) -> Any:
    return x if x.nonzero().shape[0] == 4 else -x


def _learns(self: Any, x: Any) -> Any:
    import telegrad

    with telegrad.enable_grad():
        y = self.fc(x.requires_grad_()).sum()
    y.backward()
    return x


def _seeds(self: Any, x: Any) -> Any:
    import telegrad

    telegrad.manual_seed(3)
    return x


def _specialises(self: Any, x: Any) -> Any:
    return x.view(4, 3) + 1


def _takes_another_path(self: Any, x: Any) -> Any:
    return x.relu() if x.shape[0] > 5 else x.sigmoid()


def _scales(self: Any, x: Any) -> Any:
    return x * (1 / x.shape[0] ** 0.5)


def _tabulates(self: Any, x: Any) -> Any:
    import telegrad

    return x + telegrad.tensor([float(row) for row in range(x.shape[0])]).unsqueeze(1)


def _loops(self: Any, x: Any) -> Any:
    for row in range(x.shape[0]):
        x = x + row
    return x


def _is_bounded(self: Any, x: Any) -> Any:
    assert x.shape[0] <= 100, "too many rows"
    return x + 1


def _counts_bits(self: Any, x: Any) -> Any:
    return x.repeat(x.shape[0].bit_length(), 1)


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (_reads, r"reads the elements of a tensor .* at .*test_refusals.py:\d+ in _reads"),
        (_branches, r"reads the elements of a tensor .* in _branches"),
        (_counts, r"the shape of a result depends on elements of .* in _counts"),
        (_learns, r"computes gradients at .* in _learns"),
        (_seeds, r"seeds the generator at .* in _seeds"),
        (_specialises, r"with rows=\d+ in place of 4 the module fails at .* in _specialises: ShapeError: view"),
        (_takes_another_path, r"takes another path: relu at .* in place of sigmoid at"),
        (_scales, r"gives mul at .* in _scales other arguments, which are no integers"),
        (_tabulates, r"makes a tensor of other data at .* in _tabulates"),
        (_loops, r"rows=\d+ in place of 4 the module (takes another path|does more or fewer)"),
        (_is_bounded, r"rows has no maximum, and the largest size that works is 100; say Dim\('rows', max=100\)"),
        (_counts_bits, r"argument 'repeats' of repeat at .* in _counts_bits depends on rows in no way"),
    ],
)
def test_refusals_name_the_line(tg: Any, forward: Callable[..., Any], said: str) -> None:
    module = _module(tg, forward)
    with pytest.raises(ProgramError, match=said):
        tg.export.export(module, (tg.ones(4, 3),), dynamic_shapes={"x": {0: tg.export.Dim("rows")}})
    assert module(tg.ones(4, 3)).shape[-1:] in ((3,), (12,))  # the module is as it was


def test_what_is_said_of_dimensions_must_fit(tg: Any) -> None:
    Dim, module, x = tg.export.Dim, mlp(tg), tg.ones(3, 4)
    rows = Dim("rows", min=2, max=8)
    for shapes, said in (
        ({"y": {0: rows}}, "names 'y'; the arguments are input"),
        ({"input": {2: rows}}, "names dimension 2"),
        ({"input": {0: Dim("rows", min=5)}}, "is 3, which Dim('rows', min=5) cannot be"),
        ({"input": {0: 4}}, "is said to be 4, and is 3"),
        ({"input": {0: rows, 1: rows}}, "says that rows is 4, and another one 3"),
        (({0: rows}, None), "one entry for each of input"),
        ({"input": {0: "rows"}}, "must be a Dim, an int or None"),
    ):
        with pytest.raises((ValueError, TypeError)) as raised:
            tg.export.export(module, (x,), dynamic_shapes=shapes)
        assert said in str(raised.value)
    with pytest.raises(ValueError, match="inconsistent"):
        Dim("rows", min=4, max=3)
    program = tg.export.export(module, (x,), dynamic_shapes={"input": {0: rows}})
    with pytest.raises(RuntimeError, match="the size rows is 9; the program takes sizes from 2 to 8"):
        program.module()(tg.ones(9, 4))
    with pytest.raises(TypeError, match=r"instance of torch.nn.Module"):
        tg.export.export(lambda x: x, (x,))


@pytest.fixture
def program_file(tg: Any, tmp_path: Path) -> Path:
    path = tmp_path / "program.safetensors"
    shapes = {"input": {0: tg.export.Dim("batch")}}
    tg.export.save(tg.export.export(mlp(tg), (tg.ones(3, 4),), dynamic_shapes=shapes), path)
    return path


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["telegrad.program"]), content[8 + length :]


def _write(path: Path, header: dict[str, Any], program: Any, data: bytes) -> None:
    header["__metadata__"]["telegrad.program"] = program if isinstance(program, str) else json.dumps(program)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_hostile_files_get_typed_errors(tg: Any, program_file: Path, seed: int) -> None:
    """Every part of a description is replaced by values of all kinds: no other error comes, and nothing is computed."""
    rng = random.Random(seed)
    header, program, data = _parts(program_file)
    places = list(_places(program))
    values: list[Any] = [None, -1, 0, 1 << 70, "x", "", [], {}, [[]], {"sum": [[1, "batch"]]}, {"float": "inf"}, 1e400]
    refused = 0
    for path in places:
        for value in rng.sample(values, 4):
            changed = json.loads(json.dumps(program))
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            _write(program_file, dict(header), changed, data)
            try:
                tg.export.load(program_file)
            except TelegradError as error:
                assert isinstance(error, (ProgramError, NotSupportedError)), (path, value, repr(error))
                refused += 1
    assert refused > len(places)


def _places(item: Any, path: tuple[Any, ...] = ()) -> Any:
    if path:
        yield path
    for key, inner in item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ():
        yield from _places(inner, (*path, key))


def test_damaged_files_are_told_apart(tg: Any, program_file: Path) -> None:
    header, program, data = _parts(program_file)
    good = program_file.read_bytes()
    for content, said in (
        (b"", "no file of the format"),
        (good[:50], "no file of the format"),
        (good[:-1], "the file should have"),
        (good + b"x", "the file should have"),
        (good.replace(b'"F32"', b'"Q32"'), "is 'Q32', which telegrad does not have"),
    ):
        program_file.write_bytes(content)
        with pytest.raises(TelegradError) as raised:
            tg.export.load(program_file)
        assert said in str(raised.value)
    for change, said in (
        ({"version": 2}, "is of version 2, and this telegrad reads version 1"),
        ({"steps": [{**program["steps"][0], "op": "system"}]}, "has an operation 'system'"),
        ({"steps": program["steps"][::-1]}, "is used before it is computed"),
        ({"symbols": [{"name": "batch", "min": 9, "max": 3}]}, "has no size: from 9 to 3"),
        ({"more": 1}, "unknown field `more`"),
        ({"outputs": []}, "does not name each tensor once"),
    ):
        _write(program_file, dict(header), {**program, **change}, data)
        with pytest.raises(TelegradError, match=said):
            tg.export.load(program_file)
    _write(program_file, dict(header), "[" * 100_000, data)
    with pytest.raises(ProgramError, match="malformed"):
        tg.export.load(program_file)


def test_numbers_that_are_to_differ_between_calls_are_refused(tg: Any) -> None:
    class Scaled(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, factor: int) -> Any:
            return x * factor

    with pytest.raises(ValueError, match="factor is 3, and a program has numbers among its arguments as they are"):
        tg.export.export(Scaled(), (tg.ones(2), 3), dynamic_shapes=(None, tg.export.Dim.DYNAMIC))
