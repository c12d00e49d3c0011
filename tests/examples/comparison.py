"""Compares what a program printed on two libraries: the same text, and numbers that agree.

A program says how it is tested in comments below its docstring, one fact a line; lines that are left out have defaults:

    # test: --steps 8            the arguments of the short run; the long one has the program's defaults
    # agree: 1e-3                relative and absolute difference of every number; 1e-4 by default
    # agree: spread              the library draws the random numbers: see `assert_within_spread`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?\b|\b(?:nan|inf)\b)")
STANDARD_DEVIATIONS = 4.0
SEGMENTS = 3


@dataclass(frozen=True)
class Terms:
    """How a program is run and compared."""

    arguments: list[str]
    tolerance: float
    is_random: bool


def terms_of(program: Path) -> Terms:
    """Read a program's comments."""
    facts = dict(re.findall(r"^# (test|agree): (.*)$", program.read_text(), re.MULTILINE))
    agree = facts.get("agree", "1e-4")
    return Terms(facts.get("test", "").split(), 1e-4 if agree == "spread" else float(agree), agree == "spread")


def texts_and_numbers(output: str) -> tuple[list[str], list[list[float]]]:
    """Return the lines with a mark for every number, and each line's numbers; runs of spaces are one."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return [NUMBER.sub("#", line) for line in lines], [[*map(float, NUMBER.findall(line))] for line in lines]


def assert_equal_outputs(actual: str, expected: str, tolerance: float) -> None:
    """Assert that two runs printed the same lines, and numbers that differ by rounding."""
    (texts, numbers), (expected_texts, expected_numbers) = texts_and_numbers(actual), texts_and_numbers(expected)
    assert texts == expected_texts, f"{actual}\nfor\n{expected}"
    for line, want in zip(numbers, expected_numbers, strict=True):
        assert line == pytest.approx(want, rel=tolerance, abs=tolerance, nan_ok=True), f"{actual}\nfor\n{expected}"


def assert_within_spread(actual: str, references: list[str], deviations: float = STANDARD_DEVIATIONS) -> None:
    """Assert that a run lies among runs with other seeds.

    Lines with the same text are one curve for each of their numbers. The mean over each third of a curve lies within so
    many standard deviations of the references' mean. What five references say of a deviation varies by half, so it is
    that of the third or of the whole curve, whichever is larger.
    """
    curves, others = _curves(actual), [_curves(reference) for reference in references]
    assert all(curves.keys() == other.keys() for other in others), f"{actual}\nfor\n{references[0]}"
    for name in curves:
        samples = np.array([_segments(other[name]) for other in others])
        center, variances = samples.mean(0), samples.var(0, ddof=1)
        deviation = np.sqrt(np.maximum(variances, variances.mean()))
        distance = np.abs(_segments(curves[name]) - center)
        allowed = deviations * deviation + 1e-4 * np.abs(center) + 1e-6
        assert (distance <= allowed).all(), f"{name}: {_segments(curves[name])} is not within {center} +- {allowed}"


def _curves(output: str) -> dict[tuple[str, int], list[float]]:
    """Return the values that each number of each kind of line takes, in order.

    A list of numbers, such as decoded letters, is no point of a curve: its length differs from seed to seed.
    """
    curves: dict[tuple[str, int], list[float]] = {}
    for text, numbers in zip(*texts_and_numbers(output), strict=True):
        if "[#, #" in text:
            continue
        for place, number in enumerate(numbers):
            curves.setdefault((text, place), []).append(number)
    return curves


def _segments(curve: list[float]) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(curve, min(SEGMENTS, len(curve)))])
