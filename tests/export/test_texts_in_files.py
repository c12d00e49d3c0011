"""Texts in files of programs become names in generated code: none of them is run, whatever it says."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telegrad_protocol.errors import TelegradError

CODE = "getattr(__import__('os'), 'mkdir')('run')"
TEXTS = (
    f'x"); {CODE}; ("', f"x'); {CODE}; ('", f"x\n    {CODE}\n    y", f"x={CODE}", f"x: {CODE}", f"x) -> {CODE}: pass #",
    f"x, y={CODE}", f"x; {CODE}", f"x[{CODE}]", f"*{CODE}", f'"""\n{CODE}\n"""', f"x # {CODE}\n    {CODE}", "def", "",
    f'x" + str({CODE}) + "', f"x' + str({CODE}) + '", "/dev/zero:1 in f",
)  # fmt: skip


class Parts:
    """A module whose program has many kinds of texts, which no other part of the file has."""

    def __init__(self, tg: Any, path: Path) -> None:
        self._tg, self._path = tg, path
        rows = tg.export.Dim("ROWS", min=2)
        given = (tg.ones(3, 4), {"KEY": tg.ones(3, 4), "NUMBER": 2})
        shapes = {"INPUT": {0: rows}, "TREE": {"KEY": {0: rows}, "NUMBER": None}, "NAMED": None}
        program = tg.export.export(self._module(tg), given, {"NAMED": tg.ones(4)}, dynamic_shapes=shapes)
        tg.export.save(program, path)
        self.content = path.read_bytes()

    @staticmethod
    def _module(tg: Any) -> Any:
        class Net(tg.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.INNER = tg.nn.Sequential(tg.nn.Linear(4, 4))
                self.register_buffer("BUFFER", tg.zeros(4))

            def forward(self, INPUT: Any, TREE: Any, *, NAMED: Any) -> Any:
                self.BUFFER.add_(1)
                first, last = self.INNER(INPUT).split(2, 1)
                return {"RESULT": (TREE["KEY"] * TREE["NUMBER"] + NAMED + self.BUFFER).sum() + first + last}

        return Net()

    def replace(self, former: str, text: str) -> None:
        """Write the file with a text in the place of another, in all names and in the metadata."""
        (length,) = struct.unpack("<Q", self.content[:8])
        header = _replaced(json.loads(self.content[8 : 8 + length]), former, text)
        written = json.dumps(header).encode()
        self._path.write_bytes(struct.pack("<Q", len(written)) + written + self.content[8 + length :])

    def uses(self) -> Iterator[Callable[[], Any]]:
        """What makes text of a program, or code."""
        program = self._tg.export.load(self._path)
        yield lambda: str(program)
        yield lambda: program.graph_module.print_readable(print_output=False)
        yield lambda: program.run_decompositions().module()
        yield lambda: program.module().code
        yield lambda: program.module()(
            self._tg.ones(3, 4), {"KEY": self._tg.ones(3, 4), "NUMBER": 2}, NAMED=self._tg.ones(4)
        )
        yield lambda: self._tg.export.unflatten(program)(
            self._tg.ones(3, 4), {"KEY": self._tg.ones(3, 4), "NUMBER": 2}, NAMED=self._tg.ones(4)
        )


def _replaced(item: Any, former: str, text: str) -> Any:
    if isinstance(item, dict):
        return {_replaced(key, former, text): _replaced(value, former, text) for key, value in item.items()}
    if isinstance(item, list):
        return [_replaced(value, former, text) for value in item]
    if not isinstance(item, str):
        return item
    if item[:1] in ("{", "["):  # the metadata holds texts of JSON
        return json.dumps(_replaced(json.loads(item), former, text))
    return item.replace(former, text)


@pytest.mark.parametrize(
    "former", ["ROWS", "INPUT", "TREE", "KEY", "NUMBER", "NAMED", "INNER", "BUFFER", "RESULT", "Linear", "/"]
)
def test_no_text_of_a_file_is_run(tg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str) -> None:
    monkeypatch.chdir(tmp_path)
    parts = Parts(tg, tmp_path / "program.safetensors")
    assert former.encode() in parts.content
    for text in TEXTS:
        parts.replace(former, text)
        try:
            for use in parts.uses():
                try:
                    use()
                except TelegradError:
                    continue
        except TelegradError:
            continue
        finally:
            assert not Path("run").exists(), text
