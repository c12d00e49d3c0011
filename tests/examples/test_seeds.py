"""The programs that the seeds print run unmodified on telegrad, and print what they print on PyTorch.

Each file of ``seeds/`` has a program below the line "# As printed:", before it what the text presupposes, and below
"# Shown:" what shows that the program worked. Comments at the top say how it is tested, one fact a line:

    # agree: 1e-4      how numbers agree with PyTorch's; "exact" if the text is the same, "texts" if only words are
    # runs: telegrad alone, since ...    there is nothing to compare with
    # warns: first; second               parts of what stands on standard error
    # needs: gpu, kernels, host code     it names GPUs; launches kernels of its own; compiles C++
    # packages: triton                   what it imports beside torch
    # shrinks: 100000 -> 10000           a size of the program, and what it is in the shorter run
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.draws import drawn
from .comparison import assert_equal_outputs, texts_and_numbers
from .running import environment, run_on_pytorch

PROGRAMS = sorted((Path(__file__).parent / "seeds").glob("*.py"))


def facts_of(program: Path) -> dict[str, str]:
    """Read the comments at the top of a program."""
    head = program.read_text().partition("# As printed:\n")[0]
    return dict(re.findall(r"^# (seeds|agree|runs|warns|needs|packages|shrinks): (.*)$", head, re.MULTILINE))


NEEDS_GPU = [program for program in PROGRAMS if "gpu" in facts_of(program).get("needs", "")]
NEEDS_MORE = [program for program in NEEDS_GPU if facts_of(program)["needs"] != "gpu"]
"""Those that also run kernels or host code of their own."""
NEEDS_NONE = [program for program in PROGRAMS if program not in NEEDS_GPU]


def run_on_telegrad(program: Path, url: str, **variables: str) -> tuple[str, str]:
    """Have ``telegrad run`` run a program; return what it printed, and what stands on standard error."""
    command = [sys.executable, "-m", "telegrad", "run", "--url", url, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment() | variables, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def assert_warned(program: Path, errors: str) -> None:
    """Assert that a program was told what its comments say, and nothing else."""
    warned = [part for part in facts_of(program).get("warns", "").split("; ") if part]
    missing = [part for part in warned if part not in errors]
    assert not missing and bool(warned) == bool(errors), errors


def assert_agrees_with_pytorch(program: Path, actual: str) -> None:
    """Assert that a program has printed what it prints on PyTorch's CPU, where that can run it."""
    facts = facts_of(program)
    if "runs" in facts:
        return
    expected = run_on_pytorch(program, [])
    if facts["agree"] == "exact":
        assert actual == expected
    elif facts["agree"] == "texts":
        assert texts_and_numbers(actual)[0] == texts_and_numbers(expected)[0]
    else:
        assert_equal_outputs(actual, expected, float(facts["agree"]))


@pytest.mark.parametrize("program", drawn([pytest.param(path, id=path.stem) for path in NEEDS_NONE], 6))
def test_programs_run_as_printed(program: Path, cpu_url: str) -> None:
    printed, errors = run_on_telegrad(program, cpu_url)
    assert_warned(program, errors)
    assert_agrees_with_pytorch(program, printed)


@pytest.mark.gpu
@pytest.mark.parametrize("program", [p for p in NEEDS_NONE if "cuda" in p.read_text()], ids=lambda path: path.stem)
def test_programs_that_can_use_a_gpu_agree_with_pytorch_s_cpu(program: Path, permissive_url: str) -> None:
    printed, _ = run_on_telegrad(program, permissive_url)
    assert_agrees_with_pytorch(program, printed)


@pytest.mark.gpu
@pytest.mark.parametrize("program", [p for p in NEEDS_GPU if p not in NEEDS_MORE], ids=lambda path: path.stem)
def test_programs_for_gpus_run_as_printed(program: Path, url: str, tmp_path: Path) -> None:
    run_on_telegrad(_shrunk(program, tmp_path), url)


@pytest.mark.gpu
@pytest.mark.parametrize("program", NEEDS_MORE, ids=lambda path: path.stem)
def test_programs_with_code_of_their_own_run_as_printed(program: Path, permissive_url: str, tmp_path: Path) -> None:
    for package in facts_of(program).get("packages", "").split():
        pytest.importorskip(package, reason="GPU machines have it with PyTorch")
    kernels = str(int("kernels" in facts_of(program)["needs"]))
    run_on_telegrad(_shrunk(program, tmp_path), permissive_url, TELEGRAD_KERNELS=kernels)


def _shrunk(program: Path, folder: Path) -> Path:
    """The program, or a copy with the smaller size that its head names."""
    shrinks = facts_of(program).get("shrinks")
    if not shrinks:
        return program
    size, smaller = shrinks.split(" -> ")
    copy = folder / program.name
    copy.write_text(program.read_text().replace(size, smaller))
    return copy


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("program", [p for p in PROGRAMS if "shrinks" in facts_of(p)], ids=lambda path: path.stem)
def test_programs_for_gpus_run_as_printed_in_full_size(program: Path, url: str) -> None:
    run_on_telegrad(program, url)
