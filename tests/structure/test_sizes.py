"""Folders that can be taken in at a glance, and files that can be read in one sitting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "server", ROOT / "client")
MOST_FILES = 22
MOST_LINES = 400
FAMILIES = {"server/engine/ops", "client/telegrad_protocol/ops", "client/telegrad/nn/modules"}
"""A file a family: of operators, in two parallel lists, and of layers, under the names of PyTorch's files."""


def sources() -> list[Path]:
    return [path for folder in SOURCE for path in folder.rglob("*.py")]


def test_no_folder_is_crowded() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in sources())
    crowded = {folder: count for folder, count in counts.items() if count > MOST_FILES and folder not in FAMILIES}
    assert crowded == {}


def test_no_file_is_long() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in sources()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_every_folder_says_what_lives_there() -> None:
    faces = [path for path in sources() if path.name == "__init__.py"]
    folders = {path.parent for path in sources()}
    assert folders - {face.parent for face in faces} <= {ROOT / "client"}
    assert [str(face.relative_to(ROOT)) for face in faces if not face.read_text().startswith('"""')] == []
