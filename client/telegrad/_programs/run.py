"""Runs a program that imports ``torch`` on telegrad: ``telegrad run script.py``, or ``telegrad.as_torch()``."""

from __future__ import annotations

import io
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType

from telegrad._functions.creation import set_default_device
from telegrad._session.last_errors import note_status

from .processes.forks import connect_in_forks
from .processes.spawned import serve_in_spawned
from .torch_modules import serve_torch


def as_torch(device: str = "cpu") -> ModuleType:
    """Have ``import torch`` give telegrad in this process, and return that module.

    ``device``: where tensors are made if the program names none; the CPU of the server, as PyTorch has it, unless told
    otherwise. Opens a session where there is none; processes that this one forks or spawns open their own.

    Raises ImportError if PyTorch itself was imported before.
    """
    serve_torch()
    connect_in_forks()
    serve_in_spawned()
    set_default_device(device)
    return sys.modules["torch"]


def run_program(name: str, arguments: Sequence[str], is_module: bool = False) -> int:
    """Run a file, or a module by its name, and return the exit status; a failure is printed as Python prints it."""
    try:
        (run_module if is_module else run_script)(name, arguments)
    except SystemExit as error:
        note_status(error.code)
        raise
    except BaseException as error:
        error.__traceback__ = _below_this_package(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _below_this_package(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the program."""
    ours = (__file__, runpy.__file__, f"<frozen {runpy.__name__}>")
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a Python file as ``python path arguments`` would; what it raises is raised here."""
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = ModuleType("__main__")
    main.__file__ = path
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102 - the program is what the person has asked to run


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as ``python -m name arguments`` would."""
    sys.argv[:] = [name, *arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
