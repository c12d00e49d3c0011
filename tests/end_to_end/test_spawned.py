"""Processes that a program for PyTorch starts anew: their torch is telegrad, too, on the server of the program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from ..transport.waiting import wait_until
from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]

SPAWNING = """
import joblib
import torch
import torch.multiprocessing as multiprocessing
from joblib.externals.loky import reusable_executor

def task(number):
    own = torch.nn.Linear.__init__.__code__.co_filename
    return type(torch).__name__, "telegrad" in own, torch.get_default_device(), torch.ones(2) * number

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(task, [2, 3]))
            pool.close()
            pool.join()
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(task)(number) for number in [2, 3]))
    reusable_executor.get_reusable_executor().shutdown()
"""


def test_processes_that_are_started_anew_compute_with_telegrad(
    server: ServerProcess, start_program: Start, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNING)
    run = "import sys; from telegrad.__main__ import main; sys.exit(main(['run', *sys.argv[1:]]))"
    output, errors = start_program(run, "--url", server.url, str(program)).communicate()
    results = [f"('TorchModule', True, device(type='cpu'), tensor([{n}., {n}.]))" for n in (2, 3)]
    assert output.splitlines() == [f"[{', '.join(results)}]"] * 3, errors
    wait_until(lambda: server.sessions == 0, "sessions of processes that have ended are closed")
