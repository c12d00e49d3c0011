"""``import torch`` served by telegrad: every module of PyTorch's is the module of telegrad with the same name.

A finder, put before all others, answers for ``torch`` and what is below it. Where telegrad keeps in one module what
PyTorch keeps in several, such as ``torch.nn.modules.linear``, the missing one shows the names of the one above it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from opcode import opmap
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from telegrad_protocol.dtypes import DType
from telegrad_protocol.shown_name import show_as

from . import safetensors_torch
from .absent import reason
from .module_places import ELSEWHERE, PARTS
from .shown_classes import show_classes
from .starred import STARRED
from .torch_version import PYTORCH_VERSION, TorchVersion, version_module

_CONSTANT: Final = (type, FunctionType, BuiltinFunctionType, DType)
"""What a module of PyTorch's name has itself, since it does not change; all else is read where telegrad has it."""
_FUNCTIONS_FIRST: Final = ("torch._higher_order_ops",)
"""Packages whose functions are meant by a name that a module in them has, too."""
_LISTED: Final = ("torch.distributions", "torch.optim")
"""Modules whose classes packages find by going through ``__dict__``: those that load later are there at once."""


class TorchModule(ModuleType):
    """A module of PyTorch's name that has the attributes of telegrad's modules; to set one sets it in the first."""

    def __init__(self, name: str, served_by: Sequence[ModuleType]) -> None:
        super().__init__(name, served_by[0].__doc__)
        self.__dict__["_served_by"] = served_by
        if name in _LISTED:
            self.__dict__.update((public, getattr(served_by[0], public)) for public in _public_names(served_by[0]))
        for module in reversed(served_by):
            self.__dict__.update((k, v) for k, v in vars(module).items() if self._keeps(k, v))

    def _keeps(self, name: str, value: Any) -> bool:
        """Whether a name stays what it is, and stands for no module, as PyTorch's ``_utils.collate`` does."""
        return name[0] != "_" and isinstance(value, _CONSTANT) and not self._means_module(name)

    def _means_module(self, name: str) -> bool:
        """Whether a name is first of all that of a module which telegrad keeps elsewhere."""
        if self.__name__ in _FUNCTIONS_FIRST and _is_shadowed(self.__dict__["_served_by"][0], name):
            return False
        return f"{self.__name__}.{name}".removeprefix("torch.") in ELSEWHERE

    def __getattr__(self, name: str) -> Any:
        full_name, served_by = f"{self.__name__}.{name}", self.__dict__["_served_by"]
        if name == "__all__":
            starred = STARRED.get(self.__name__.removeprefix("torch."))
            return _public_names(served_by[0]) if starred is None else starred.split()
        if full_name == _VERSION or self._means_module(name):
            return import_module(full_name)
        for module in served_by:
            with suppress(AttributeError):
                value = getattr(module, name)
                is_module = isinstance(value, ModuleType) and value.__name__ == f"telegrad{full_name[5:]}"
                if is_module and not _origins(full_name):
                    continue  # a file of telegrad's own, which PyTorch has nothing like
                if is_module:
                    return import_module(full_name)
                if isinstance(value, _CONSTANT):
                    self.__dict__[name] = value
                return value
        if full_name == "torch.torch":
            return self
        if not name.startswith("_") and _origins(full_name):  # PyTorch has imported most of its modules beforehand
            return import_module(full_name)
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Python replaces the message of an AttributeError that `from torch import name` meets.
        kind = ImportError if _is_imported_by(sys._getframe(1)) else AttributeError
        raise kind(reason(full_name.removeprefix("torch."), dir(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        first = self.__dict__["_served_by"][0]
        if isinstance(value, TorchModule) and value.__name__ == f"{self.__name__}.{name}":
            if replaced := self.__dict__.get("_replaced", {}).pop(name, None):
                setattr(first, name, replaced[0])
            if not _is_shadowed(first, name):  # importing sets a module in the one above it
                super().__setattr__(name, value)
        elif name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._note_replaced(name, value)
            setattr(first, name, value)
            if name in self.__dict__:
                super().__setattr__(name, value)

    def _note_replaced(self, name: str, value: Any) -> None:
        """Keep what a name stands for before it is set, up to a value that it had once and is given back."""
        with suppress(AttributeError):
            replaced = self.__dict__.setdefault("_replaced", {}).setdefault(name, [])
            replaced.append(getattr(self.__dict__["_served_by"][0], name))
            returned = next((place for place, former in enumerate(replaced) if former is value), None)
            if returned is not None:
                del replaced[max(returned, 1) :]

    def __delattr__(self, name: str) -> None:
        """Undo the last setting of a name, as tests do that put something else in its place; delete one never set."""
        module, replaced = self.__dict__["_served_by"][0], self.__dict__.get("_replaced", {}).get(name)
        if replaced:
            setattr(module, name, replaced.pop() if len(replaced) > 1 else replaced[0])
            self.__dict__.pop(name, None)  # it is looked up anew
        elif name in vars(module):
            delattr(module, name)
            self.__dict__.pop(name, None)
        elif self.__dict__.pop(name, None) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the module as its name, where it is a global of a function that is sent to another process."""
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        names = {name for module in self.__dict__["_served_by"] for name in dir(module) if _is_shown(module, name)}
        return sorted({*self.__dict__, *names})


def _is_shadowed(module: ModuleType, name: str) -> bool:
    """Whether a package of telegrad's has under a module's name what is no module, as ``autograd.gradcheck`` is."""
    value = getattr(module, name, None)
    return value is not None and not isinstance(value, ModuleType)


def _is_shown(module: ModuleType, name: str) -> bool:
    """Whether a name may be asked for: not that of a file of telegrad's own, which PyTorch has nothing like."""
    value = vars(module).get(name)
    home = f"{module.__name__}.{name}"
    return not (isinstance(value, ModuleType) and value.__name__ == home) or bool(_origins(f"torch{home[8:]}"))


def _public_names(module: ModuleType) -> list[str]:
    """Return what `from module import *` imports: all that is public in a module that does not say so itself."""
    stated: list[str] | None = getattr(module, "__all__", None)
    return [name for name in dir(module) if _is_public(module, name)] if stated is None else stated


def _is_public(module: ModuleType, name: str) -> bool:
    """Whether a name and the module that defines its value are telegrad's public ones."""
    if name.startswith("_"):
        return False
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return module.__name__ in _WITH_MODULES and value.__name__.startswith("telegrad.")
    package, _, home = (getattr(value, "__module__", None) or "").partition(".")
    if package not in ("telegrad", "torch") or home.startswith("_"):
        return False
    if not home:  # a function that is in several modules, or what this module has imported
        return not isinstance(value, type)
    above = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    return f"telegrad.{home}.".startswith(f"{above}.")


def _is_imported_by(frame: FrameType) -> bool:
    """Whether a frame asks for an attribute because of a `from ... import` statement."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


class TorchFinder:
    """Finds ``torch`` and its modules in telegrad; they have no files of their own."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module comes from; ModuleNotFoundError says what to use instead of one that is absent."""
        if name in safetensors_torch.NAMES:
            return safetensors_torch.spec_of(name, path)
        if name.startswith("functorch.") and name not in _FUNCTORCH:
            raise ModuleNotFoundError(reason(f"_{name}").replace("torch._", "", 1), name=name)
        if name not in ("torch", *_FUNCTORCH) and not name.startswith("torch."):
            return None
        if not _origins(name):
            raise ModuleNotFoundError(reason(name.removeprefix("torch.")), name=name)
        return ModuleSpec(name, _Loader(), origin="telegrad", is_package=True)  # type: ignore[arg-type]


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        is_version = spec.name == _VERSION
        return TorchModule(
            spec.name,
            [version_module(_VERSION)] if is_version else [*map(import_module, _origins(spec.name))],
        )

    def exec_module(self, module: ModuleType) -> None:
        show_classes()
        if module.__name__ == "torch":
            telegrad = import_module("telegrad")
            module.__version__ = TorchVersion(f"{PYTORCH_VERSION}+telegrad.{telegrad.__version__}")  # type: ignore[attr-defined]


_VERSION: Final = "torch.version"
_FUNCTORCH: Final = {
    "functorch": "_programs.private.functorch_package",
    "functorch.compile": "compiler.aot.functions",
    "functorch.experimental": "func",
    "functorch.experimental.control_flow": "_programs.private.higher_order",
}
"""A package that is installed with PyTorch, and where what is below it comes from."""
_WITH_MODULES: Final = frozenset(("telegrad.nn", "telegrad.nn.utils"))
"""Packages of which PyTorch's `import *` brings the modules too."""


def _origins(name: str) -> list[str]:
    """Return the modules of telegrad that serve one of PyTorch's, none if there is none."""
    if name in ("torch", _VERSION):
        return ["telegrad", "telegrad._programs.private.top_level"]
    if name in _FUNCTORCH:
        return [f"telegrad.{_FUNCTORCH[name]}"]
    below = name.removeprefix("torch.")
    if below in ELSEWHERE:
        return [f"telegrad.{ELSEWHERE[below]}"]
    above, _, last = below.rpartition(".")
    origins = [] if last.startswith("_") or not _is_there(f"telegrad.{below}") else [f"telegrad.{below}"]
    if last in PARTS.get(above, "").split():
        origins += _origins(f"torch.{above}" if above else "torch")
    return origins


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a module above it is missing, or is no package
        return False
    except ValueError:  # it is loaded, and was made rather than found, so it has no specification
        return True


def serve_torch() -> None:
    """Have ``import torch`` give telegrad from here on; nothing happens where it does already.

    Raises ImportError if PyTorch itself was imported before.
    """
    present = sys.modules.get("torch")
    if present is None:
        sys.meta_path.insert(0, TorchFinder)
        show_as("torch")
        show_classes()
        import_module("torch")
        safetensors_torch.adapt_loaded()
    elif not isinstance(present, TorchModule):
        raise ImportError("PyTorch is imported in this process already; call telegrad.as_torch() before `import torch`")
