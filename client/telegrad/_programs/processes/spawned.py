"""Processes that ``multiprocessing`` or loky start anew: the program's ``import torch`` gives telegrad in them, too.

Such a process (``spawn``, ``forkserver``, a worker of joblib) imports the program's modules before it is given its
task. What is to be done before that travels with the description that it is sent first: unpickling it serves ``torch``.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import forkserver, spawn
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from telegrad._session.connect import _open_default, connect, current_connection
from telegrad._session.current import current_session, has_session, open_default_with
from telegrad._session.session import ClientSession
from telegrad_protocol.meta import Device

from ..torch_modules import serve_torch
from .forks import connect_in_forks

_ROOT: Final = str(Path(__file__).parents[3])
"""The folder that telegrad is imported from."""
_LOKY: Final = ("loky.backend.spawn", "joblib.externals.loky.backend.spawn")
"""Modules of packages that describe programs to processes as ``multiprocessing.spawn`` does."""
_is_serving = False


class _Call:
    """A call that is made where this is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._described = function, arguments

    def __reduce__(self) -> Any:
        return self._described


def serve_in_spawned() -> None:
    """From now on have processes that are started anew import telegrad as ``torch``."""
    global _is_serving
    if _is_serving:
        return
    _is_serving = True
    for module in (spawn, *(sys.modules[name] for name in _LOKY if name in sys.modules)):
        _adapt(module)
    sys.meta_path.insert(0, _LokyFinder)
    forkserver.set_forkserver_preload([])  # by default it imports the program itself, before anything is unpickled


class _LokyFinder:
    """Finds the modules of loky, whose descriptions of the program are adapted once they are imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where one of these modules comes from; None for others."""
        spec = PathFinder.find_spec(name, path) if name in _LOKY else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _adapt(module)


def _adapt(module: ModuleType) -> None:
    vars(module)["get_preparation_data"] = _with_calls(module.get_preparation_data)


def _with_calls(describe: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return what describes the program to a process as ``describe`` does, and has it import telegrad first."""

    @wraps(describe)
    def described(*args: Any, **options: Any) -> dict[str, Any]:
        found = () if _ROOT in _installed() else (_Call(site.addsitedir, _ROOT),)
        calls = (*found, _Call(_serve_again, *_how_it_is_opened()))
        return {**describe(*args, **options), "telegrad": calls}

    return described


def _installed() -> tuple[str, ...]:
    """The folders that every interpreter of this installation looks for modules in."""
    return (*site.getsitepackages(), site.getusersitepackages())


def _how_it_is_opened() -> tuple[str | None, tuple[Any, ...], dict[str, Any]]:
    """Return where this process makes its tensors, and the arguments of ``connect`` for another session like its own.

    A context of TLS cannot be sent: the process that is started uses that of the system.
    """
    if not has_session():
        return None, (), {}
    device, reopen = str(current_session().default_device), current_connection().reopen
    if not isinstance(reopen, partial):
        return device, (), {}
    return device, reopen.args, {name: value for name, value in reopen.keywords.items() if name != "tls"}


def _serve_again(device: str | None, address: tuple[Any, ...], wishes: dict[str, Any]) -> None:
    """Serve ``torch`` in this process; its first tensor opens a session as the process has that started this one."""
    serve_torch()
    connect_in_forks()
    serve_in_spawned()
    open_default_with(partial(_open, device or "cpu", address, wishes))


def _open(device: str, address: tuple[Any, ...], wishes: dict[str, Any]) -> ClientSession:
    open_default_with(_open_default)
    session = connect(*address, **wishes).session
    session.set_default_device(Device(device))
    return session
