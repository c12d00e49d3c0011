"""Type checkers accept what is right and refuse what is wrong, in code that uses telegrad as an installed package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import telegrad
import telegrad_protocol

HERE = Path(__file__).parent
CLIENT = Path(telegrad.__file__).parents[1]
INSTALLED = Path(pytest.__file__).parents[1]
PROGRAMS = ("training_script.py", "wrong_uses.py")
Check = Callable[[Path], set[tuple[str, int]]]
"""Runs a type checker on the programs of a folder; gives the files and lines that it refuses."""


def wrong_lines() -> set[tuple[str, int]]:
    lines = (HERE / "wrong_uses.py").read_text().splitlines()
    return {("wrong_uses.py", number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs, and beside them an environment in which telegrad is installed."""
    packages = tmp_path / "venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "telegrad.pth").write_text(f"{CLIENT}\n{INSTALLED}\n")
    for name in PROGRAMS:
        (tmp_path / name).write_text((HERE / name).read_text())
    return tmp_path


def mypy(folder: Path) -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary", "--output=json",
               f"--cache-dir={folder / 'cache'}", *PROGRAMS]  # fmt: skip
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    reports = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode in (0, 1) and reports, run.stdout + run.stderr
    return {(report["file"], report["line"]) for report in reports if report["severity"] == "error"}


def pyright(folder: Path) -> set[tuple[str, int]]:
    settings = {"venvPath": str(folder), "venv": "venv", "include": PROGRAMS, "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonversion=3.11"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    reports = json.loads(run.stdout)["generalDiagnostics"]
    return {
        (Path(report["file"]).name, report["range"]["start"]["line"] + 1)
        for report in reports
        if report["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_uses_are_accepted_and_wrong_ones_refused(check: Check, folder: Path) -> None:
    refused, wrong = check(folder), wrong_lines()
    assert refused - wrong == set()
    assert wrong - refused == set()


@pytest.mark.parametrize("package", [telegrad, telegrad_protocol])
def test_packages_say_that_they_are_typed(package: object) -> None:
    assert (Path(str(package.__file__)).parent / "py.typed").exists()  # type: ignore[attr-defined]


def test_the_training_script_runs(tmp_path: Path) -> None:
    from .training_script import main

    loss, accuracy = main(tmp_path)
    assert loss > 0 and 0.5 < accuracy <= 1
