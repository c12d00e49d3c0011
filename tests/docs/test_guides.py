"""The guides' worked examples work: a copy of the tree gets what a guide adds, and the guide's commands run in it.

A guide marks what it adds by a line that ends in ``to `path/of/file`:`` before a fenced block of code, which is appended to
that file, or makes it. Blocks fenced as ``sh`` are commands; they run in the copy, in order, and must succeed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted(ROOT.glob("docs/adding-*.md"))
MOST_FILES = {"adding-an-op": 3, "adding-a-cuda-kernel": 4, "adding-an-endpoint": 4, "adding-a-layer": 2}
"""How many files each guide touches by hand, tests and samples included."""
ADDITION = re.compile(r"\bto `(?P<path>[\w/.-]+)`:\n+```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def additions_of(guide: Path) -> dict[str, str]:
    """What a guide adds, by the file that gets it."""
    texts: dict[str, str] = {}
    for match in ADDITION.finditer(guide.read_text()):
        texts[match["path"]] = texts.get(match["path"], "") + match["text"]
    return texts


def copy_of_the_tree(folder: Path) -> Path:
    """The sources, tests and docs, and the virtual environment's tools where ``make`` looks for them."""
    kept = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "results")
    shutil.copytree(ROOT, folder, ignore=kept, symlinks=True)
    shutil.copytree(ROOT / "benchmarks/results", folder / "benchmarks/results")
    bin_folder = folder / ".venv/bin"
    bin_folder.mkdir(parents=True)
    for tool in Path(sys.executable).parent.iterdir():
        (bin_folder / tool.name).symlink_to(tool)
    for stamp in (".demo", ".dev"):  # what make looks at: this environment is complete, and newer than pyproject.toml
        (folder / ".venv" / stamp).touch()
    return folder


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_touches_no_more_files_than_it_should(guide: Path) -> None:
    touched = additions_of(guide)
    assert 0 < len(touched) <= MOST_FILES[guide.stem], sorted(touched)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_what_a_guide_adds_works(guide: Path, tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "telegrad")
    for path, text in additions_of(guide).items():
        target = tree / path
        before = target.read_text().rstrip("\n") + "\n\n\n" if target.exists() else ""
        target.write_text(before + text)
    commands = "".join(COMMANDS.findall(guide.read_text()))
    assert commands, "a guide without commands"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "client"), str(tree)])
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
