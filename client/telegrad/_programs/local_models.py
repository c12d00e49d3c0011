"""Models of a folder of this machine, whose ``hubconf.py`` has a function for each: ``torch.hub``'s part about code."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, NotSupportedError

_FILE: Final = "hubconf.py"


def load(
    repo_or_dir: str | os.PathLike[str], model: str, *args: Any, source: str = "github",
    trust_repo: bool | str | None = "check", force_reload: bool = False, verbose: bool = True,
    skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """Return what the function ``model`` of a folder's ``hubconf.py`` returns for the other arguments.

    ``source`` must be ``"local"``: NotSupportedError for ``"github"``, since code is never fetched. Raises
    FileNotFoundError where there is no ``hubconf.py``, and RuntimeError for packages that its ``dependencies`` name and
    that are not installed, and for a function that it does not have. All other options change nothing.
    """
    where = source.lower()
    if where not in ("github", "local"):
        raise ArgumentError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if where == "github":
        raise _refused("load", repo_or_dir, f"hub.load(folder, {model!r}, ..., source='local')")
    with _folder(repo_or_dir) as module:
        return _entry(module, model)(*args, **kwargs)


def list(
    github: str | os.PathLike[str], force_reload: bool = False, skip_validation: bool = False,
    trust_repo: bool | str | None = "check", verbose: bool = True,
) -> builtins.list[str]:  # fmt: skip
    """Return the names that a folder's ``hubconf.py`` can call, private ones excepted.

    ``github`` is the folder; NotSupportedError for anything else, since code is never fetched.
    """
    _require_folder("list", github)
    with _folder(github) as module:
        return [name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name))]


def help(
    github: str | os.PathLike[str], model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
) -> str | None:  # fmt: skip
    """Return the documentation of a function of a folder's ``hubconf.py``; errors are those of ``load``.

    ``github`` is the folder; NotSupportedError for anything else, since code is never fetched.
    """
    _require_folder("help", github)
    with _folder(github) as module:
        text: str | None = _entry(module, model).__doc__
        return text


def _require_folder(op: str, given: str | os.PathLike[str]) -> None:
    if not os.path.isfile(os.path.join(given, _FILE)):
        raise _refused(op, given, f"hub.{op}(folder{', model' if op == 'help' else ''})")


def _refused(op: str, repository: str | os.PathLike[str], instead: str) -> NotSupportedError:
    return NotSupportedError(
        f"hub.{op}: code is never fetched, neither that of {os.fspath(repository)!r} nor any other; get the repository "
        f"with git, read it, and call {instead} with its folder, which holds {_FILE}"
    )


@contextmanager
def _folder(path: str | os.PathLike[str]) -> Iterator[ModuleType]:
    """Run a folder's ``hubconf.py``; within the block, modules beside it can be imported."""
    folder = os.fspath(path)
    sys.path.insert(0, folder)
    try:
        spec = spec_from_file_location(_FILE, os.path.join(folder, _FILE))
        module = module_from_spec(spec)  # type: ignore[arg-type]  # the name's ending gives it a loader
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        yield module
    finally:
        sys.path.remove(folder)


def _entry(module: ModuleType, model: str) -> Any:
    if not isinstance(model, str):
        raise ArgumentError(f"Invalid input: model must be the name of a function, not {type(model).__name__}")
    missing = [name for name in getattr(module, "dependencies", None) or () if not _is_installed(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def _is_installed(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None
