"""A victim and an attacker, each a process, on one server: what the victim notices of the attacker.

What is judged are distributions that were measured in turn, the victim alone and beside the attacker, several times:
a machine that others use as well makes both slower. The best of the attempts counts, since a defect shows in all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.end_to_end.server_process import ROOT, ServerProcess, clean_environment

TRIPS = 1500
SECONDS = 20.0
"""For so long the victim measures at most."""
ATTEMPTS = 4
FACTOR = 3.0
SLICE_SECONDS = 0.002


class Measured(NamedTuple):
    """The 99th percentiles of the victim's round trips in seconds, and the median beside the attacker."""

    alone: float
    beside: float
    median: float

    @property
    def is_bounded(self) -> bool:
        """Whether the victim hardly notices the attacker."""
        return self.beside <= FACTOR * self.alone + SLICE_SECONDS


def percentile(values: list[float], share: float) -> float:
    """The value that a share of the values do not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module of this folder as a process, with pipes; its input is closed and its end waited for."""
    command = [sys.executable, "-m", f"tests.hostile.{module}", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=clean_environment(), cwd=ROOT, **pipes) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()
        running.wait(timeout=120)


def trips(victim: subprocess.Popen[str]) -> list[float]:
    """Times of round trips."""
    assert victim.stdin is not None and victim.stdout is not None
    print(TRIPS, SECONDS, file=victim.stdin, flush=True)
    times: list[float] = json.loads(victim.stdout.readline())
    return times


def attacked(server: ServerProcess, attack: str) -> tuple[list[Measured], dict[str, int]]:
    """Measure a victim alone and beside an attack, until it is bounded or was tried often enough.

    Also what the attacker was answered in the last attempt: how often by which class of error.
    """
    attempts: list[Measured] = []
    with process("victim", server.url) as victim:
        trips(victim)
        while len(attempts) < ATTEMPTS and not (attempts and attempts[-1].is_bounded):
            alone = trips(victim)
            with process("attacks", server.url, attack) as attacker:
                assert attacker.stdin is not None and attacker.stdout is not None
                assert attacker.stdout.readline() == "attacking\n"
                beside = trips(victim)
                attacker.stdin.close()  # the context closes it again, which does nothing
                answers = json.loads(attacker.stdout.readline())
            attempts.append(Measured(percentile(alone, 0.99), percentile(beside, 0.99), percentile(beside, 0.5)))
    return attempts, answers
