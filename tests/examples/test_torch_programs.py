"""The programs of ``examples/programs`` are plain PyTorch: the same file prints the same losses on telegrad.

PyTorch runs a program in this process; telegrad runs it as a person would, against a server that all of them share.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from .comparison import assert_equal_outputs, assert_within_spread, terms_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "examples" / "programs").glob("*.py"))
OTHER_SEEDS = range(1, 6)

of_every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)


def run_on_pytorch(program: Path, arguments: list[str]) -> str:
    """Run a program in this process and return what it printed; PyTorch's settings are as they were.

    What PyTorch's own modules warn of is not shown.
    """
    printed, argv, dtype = StringIO(), sys.argv, torch.get_default_dtype()
    sys.argv = [str(program), *arguments]
    try:
        with redirect_stdout(printed), torch.random.fork_rng(devices=[]), warnings.catch_warnings(), _flags_allowed():
            warnings.filterwarnings("ignore", module=r"torch\.")
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = argv
        torch.set_default_dtype(dtype)
    return printed.getvalue()


def _flags_allowed() -> Any:
    """Let programs set ``torch.backends``, which the operator database has closed for the process that imports it."""
    return torch.backends.__allow_nonbracketed_mutation()


def run_on_telegrad(program: Path, arguments: list[str], url: str) -> str:
    """Have ``telegrad run`` run a program and return what it printed."""
    command = [sys.executable, "-m", "telegrad", "run", "--url", url, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    path = [str(ROOT / "client"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server on all devices that there are."""
    command = [sys.executable, "-m", "server", "--host", "127.0.0.1", "--port", "0", "--announce"]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def compare(program: Path, arguments: list[str], url: str, seed: int, device: str | None = None) -> None:
    """Assert that a program prints on telegrad what it prints on PyTorch's CPU."""
    terms = terms_of(program)
    chosen = [] if device is None else ["--device", device]
    if terms.is_random:
        actual = run_on_telegrad(program, [*arguments, *chosen, "--seed", "0"], url)
        assert_within_spread(actual, [run_on_pytorch(program, [*arguments, "--seed", str(s)]) for s in OTHER_SEEDS])
    else:
        arguments = [*arguments, "--seed", str(seed)]
        actual = run_on_telegrad(program, [*arguments, *chosen], url)
        assert_equal_outputs(actual, run_on_pytorch(program, arguments), terms.tolerance)


@of_every_program
def test_losses_agree_with_pytorchs(program: Path, url: str, seed: int) -> None:
    compare(program, terms_of(program).arguments, url, seed)


@pytest.mark.slow
@of_every_program
def test_losses_of_whole_programs_agree_with_pytorchs(program: Path, url: str) -> None:
    """Rounding grows over many steps, so that whole programs are compared with PyTorch's spread."""
    actual = run_on_telegrad(program, ["--seed", "0"], url)
    assert_within_spread(actual, [run_on_pytorch(program, ["--seed", str(seed)]) for seed in OTHER_SEEDS])


@pytest.mark.gpu
@pytest.mark.parametrize("program", [p for p in PROGRAMS if "--device" in p.read_text()], ids=lambda path: path.stem)
def test_losses_on_a_gpu_agree_with_pytorchs_on_the_cpu(program: Path, url: str, seed: int) -> None:
    compare(program, terms_of(program).arguments, url, seed, "cuda")
