"""Kernels are compiled beside the worker, and by nobody once the server has ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil

from server.gateway.warmup import Warming, architecture_of

PATIENCE_SECONDS = 20.0
NOTES_AND_WAITS = (
    "import os, subprocess, sys, time, pathlib\n"
    "threads = os.environ['OPENBLAS_NUM_THREADS']\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
    "pathlib.Path(sys.argv[1]).write_text(f'{child.pid} {sys.argv[3]} {threads}\\n')\n"
    "time.sleep(1000)\n"
)


def test_what_compiles_ends_with_the_server_and_with_all_its_children(tmp_path: Path) -> None:
    note = tmp_path / "note"
    warming = Warming((sys.executable, "-c", NOTES_AND_WAITS, str(note)))
    warming.start(["sm_90", "sm_90"])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (note.exists() and note.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child, architecture, threads = note.read_text().split()
    assert (architecture, threads) == ("sm_90", "1")
    warming.stop()
    while _runs(int(child)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_is_not_there_is_no_reason_not_to_start() -> None:
    warming = Warming(("/nonexistent/telegrad-compiler",))
    warming.start(["sm_90"])
    warming.stop()


def test_capabilities_name_architectures() -> None:
    assert [architecture_of(each) for each in ((9, 0), (8, 6), (12, 0))] == ["sm_90", "sm_86", "sm_120"]
