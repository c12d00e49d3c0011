"""What ``torch.compile(module)`` returns: a module around the given one, which it calls as a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad.nn.modules.module import Module

from . import regions
from .compiled_functions import compiled
from .guarded.calls import Calls


class OptimizedModule(Module):
    """Calls ``_orig_mod``, and shows that module's attributes as its own; setting one sets it there.

    Another module may be set as ``_orig_mod``.
    """

    def __init__(self, mod: Module, options: regions.Options = regions.DEFAULT_OPTIONS) -> None:
        super().__init__()
        self.__dict__["_compile_options"] = options
        self.__dict__["_compiled_calls"] = Calls()
        self._modules["_orig_mod"] = mod
        del self.__dict__["training"]  # it is that of the module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        own = self.__dict__
        return regions.run(self._modules["_orig_mod"], args, kwargs, own["_compile_options"], own["_compiled_calls"])

    @property
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return what compiles another function as this module is compiled."""
        return partial(compiled, options=self.__dict__["_compile_options"])

    def __getattr__(self, name: str) -> Any:
        inner = self.__dict__["_modules"]["_orig_mod"]
        return inner if name == "_orig_mod" else getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod":
            modules[name] = value
        elif name == "_has_hooks" or "_orig_mod" not in modules:  # hooks around this module are its own
            super().__setattr__(name, value)
        else:
            setattr(modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and files have: plain values, and the module."""
        state = {**self.__dict__, "_compile_options": tuple(self.__dict__["_compile_options"])}
        del state["_compiled_calls"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["_compile_options"] = regions.Options(*state["_compile_options"])
        self.__dict__["_compiled_calls"] = Calls()

    def __len__(self) -> int:
        return len(self._modules["_orig_mod"])

    def __getitem__(self, index: Any) -> Any:
        return self._modules["_orig_mod"][index]
