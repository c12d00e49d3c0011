"""Ctrl-C on a GPU: launches cannot be taken back, so little is launched ahead, and the rest is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from .server_process import ServerProcess
from .terminal import CTRL_C, Terminal

pytestmark = pytest.mark.gpu
QUEUED = 100_000
PROGRAM = f"""
import telegrad as tg
matrix, counter = tg.randn(4096, 4096, device="cuda"), tg.zeros((), device="cuda")
other = matrix
counter.item()
for i in range({QUEUED}):
    other = (other @ matrix) * 1e-3
    counter.add_(1)
print("queued")
try:
    other.sum().item()
except KeyboardInterrupt:
    print("interrupted")
print("sum", tg.full((1000,), 2.0, device="cuda").sum().item(), "counted", int(counter.item()))
"""


def test_what_was_not_launched_is_dropped(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with ServerProcess(TELEGRAD_DEVICES="cuda:0") as server:
        before = server.operations
        with Terminal(str(program), TELEGRAD_URL=server.url, TELEGRAD_MAX_AHEAD_SECONDS="inf") as terminal:
            terminal.await_match("queued")
            terminal.type(CTRL_C)
            terminal.await_match("interrupted")
            counted = int(terminal.await_match(r"sum 2000\.0 counted (\d+)").group(1))
            assert terminal.await_end() == 0, terminal.text
        executed = server.operations - before
    assert counted < QUEUED
    assert 3 * counted <= executed <= 3 * counted + 20
