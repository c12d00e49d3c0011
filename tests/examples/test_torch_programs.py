"""The programs of ``examples/programs`` are plain PyTorch: the same file prints the same losses on telegrad.

PyTorch runs a program in this process; telegrad runs it as a person would, against a server that all of them share.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.draws import drawn
from .comparison import STANDARD_DEVIATIONS, assert_equal_outputs, assert_within_spread, terms_of
from .running import ROOT, run_on_pytorch, run_on_telegrad

PROGRAMS = sorted((ROOT / "examples" / "programs").glob("*.py"))
OTHER_SEEDS = range(1, 6)
ON_A_GPU = 6.0
"""Standard deviations that a run may be off on a GPU, which draws other numbers than the test was made with."""

of_every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)


def compare(program: Path, arguments: list[str], url: str, seed: int, device: str | None = None) -> None:
    """Assert that a program prints on telegrad what it prints on PyTorch's CPU."""
    terms = terms_of(program)
    chosen = [] if device is None else ["--device", device]
    if terms.is_random:
        actual = run_on_telegrad(program, [*arguments, *chosen, "--seed", "0"], url)
        references = [run_on_pytorch(program, [*arguments, "--seed", str(s)]) for s in OTHER_SEEDS]
        assert_within_spread(actual, references, STANDARD_DEVIATIONS if device is None else ON_A_GPU)
    else:
        arguments = [*arguments, "--seed", str(seed)]
        actual = run_on_telegrad(program, [*arguments, *chosen], url)
        assert_equal_outputs(actual, run_on_pytorch(program, arguments), terms.tolerance)


@pytest.mark.parametrize("program", drawn([pytest.param(path, id=path.stem) for path in PROGRAMS], 6))
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
