"""Puts our launchers into Triton and Numba, when a program has imported both them and telegrad, in whichever order.

Importing this costs next to nothing: it only adds a finder that watches for a few names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def _install_triton(module: ModuleType) -> None:
    import_module("telegrad._kernels.triton_hooks").install()


def _install_bench(module: ModuleType) -> None:
    hooks = sys.modules.get("telegrad._kernels.triton_hooks")
    if hooks is not None:
        hooks.install_bench(module)


def _install_numba(module: ModuleType) -> None:
    """Numba's kernels are served where they are compiled by the package numba-cuda; Numba's older compiler is not."""
    if find_spec("numba_cuda") is None:
        return
    import_module("telegrad._kernels.numba_hooks").install()


def _install_numba_module(module: ModuleType) -> None:
    if "numba_cuda" in str(module.__file__):
        import_module("telegrad._kernels.numba_module").install(module)


_WATCHED: dict[str, Callable[[ModuleType], None]] = {
    "triton": _install_triton, "triton.testing": _install_bench, "numba.cuda.dispatcher": _install_numba,
    "numba.cuda.device_init": _install_numba_module,
}  # fmt: skip
"""Modules that something is put into, and what does it once they were executed."""


class _Watcher:
    """A finder that finds what others find, for the modules that are watched, and calls what waits for them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that calls what waits for it."""
        install = _WATCHED.get(name)
        if install is None:
            return None
        spec = _found_by_others(name, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                execute(module)
                install(module)

            spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def _found_by_others(name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not _Watcher and finder is not PathFinder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return PathFinder.find_spec(name, path, target)


def watch() -> None:
    """Watch for the imports, and see to what was imported before."""
    if _Watcher not in sys.meta_path:
        sys.meta_path.insert(0, _Watcher)
    for name, install in _WATCHED.items():
        module = sys.modules.get(name)
        if module is not None and name != "triton.testing":
            install(module)
