"""The guides' worked examples work: a copy of the tree gets what a guide adds, and the guide's commands run in it.

A guide marks what it adds by a line before a fenced block of code. ``Add to `path/of/file`:`` appends the block to that
file, or makes the file. ``Add to `TABLE` in `path/of/file`:`` puts the block at the beginning of a table, behind the
line that begins with ``TABLE``. Blocks fenced as ``sh`` are commands; they run in the copy, in order, and must succeed.
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
ADDITION = re.compile(
    r"\bAdd to (?:`(?P<table>\w+)` in )?`(?P<path>[\w/.-]+)`:\n+```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def add(addition: re.Match[str], tree: Path) -> None:
    """Do to a tree what a guide says."""
    target = tree / addition["path"]
    before = target.read_text() if target.exists() else ""
    if addition["table"] is None:
        target.write_text(before.rstrip("\n") + "\n\n\n" + addition["text"] if before else addition["text"])
        return
    head = re.search(rf"^{addition['table']}\b.*\n", before, re.MULTILINE)
    assert head is not None, f"{addition['path']} has no {addition['table']}"
    target.write_text(before[: head.end()] + addition["text"] + before[head.end() :])


def copy_of_the_tree(folder: Path) -> Path:
    """The sources with their bytecode, and project files so old that make takes this environment for a current one."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "*.egg-info"))
    for path in ("pyproject.toml", "client/pyproject.toml"):
        os.utime(folder / path, (0, 0))
    return folder


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_touches_no_more_files_than_it_should(guide: Path) -> None:
    touched = {addition["path"] for addition in ADDITION.finditer(guide.read_text())}
    assert 0 < len(touched) <= MOST_FILES[guide.stem], sorted(touched)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_what_a_guide_adds_works(guide: Path, tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "telegrad")
    for addition in ADDITION.finditer(guide.read_text()):
        add(addition, tree)
    commands = "".join(COMMANDS.findall(guide.read_text()))
    assert commands, "a guide without commands"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST_"))}
    environment["VENV"] = sys.prefix
    environment["PYTEST_WORKERS"] = "0"  # more processes would import more than the few tests of a guide take
    environment["TELEGRAD_COMPILED_KERNELS"] = "never"  # a copy has no compiled loops, and no guide is about them
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "client"), str(tree)])
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
