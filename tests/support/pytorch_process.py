"""Programs under PyTorch in processes of their own, which are forked from one that has imported PyTorch.

Each begins as a new interpreter does behind ``import torch``, and changes nothing for the next one. Importing PyTorch
takes longer than most programs of tests do, and so does the end of an interpreter that has; nothing registered with
``atexit`` is called.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class PyTorchProcess:
    """The process that forks. One program runs at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, program: object, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a program, whose path may be relative to the folder, there; what it warns of is not shown."""
        assert self._process.stdin is not None and self._process.stdout is not None
        command = [str(part) for part in (program, *arguments)]
        print(json.dumps([str(folder), command]), file=self._process.stdin, flush=True)
        return subprocess.CompletedProcess(command, *json.loads(self._process.stdout.readline()))


@contextmanager
def pytorch_process() -> Iterator[PyTorchProcess]:
    """Start the process, which ends with its input."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # a process with threads is not to be forked
    command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield PyTorchProcess(process)


def _serve() -> None:
    """Run what each line of the input names, and answer with the status, and with what was printed.

    Half of the programs need ``torch._dynamo``, which takes as long as PyTorch itself.
    """
    importlib.import_module("torch._dynamo")
    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            program = multiprocessing.get_context("fork").Process(target=_run, args=(*json.loads(line), out, errors))
            program.start()
            program.join()
            print(json.dumps([program.exitcode, *map(_content, (out, errors))]), flush=True)


def _run(folder: str, command: list[str], out: Any, errors: Any) -> None:
    """Do what ``python -W ignore COMMAND`` does in a folder."""
    for file, number in ((out, 1), (errors, 2)):
        os.dup2(file.fileno(), number)
    os.chdir(folder)
    sys.argv, sys.path[0] = command, str(Path(command[0]).resolve().parent)
    warnings.simplefilter("ignore")
    runpy.run_path(command[0], run_name="__main__")


def _content(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode())


if __name__ == "__main__":
    _serve()
