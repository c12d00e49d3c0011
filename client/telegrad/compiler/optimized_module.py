"""What ``torch.compile(module)`` returns: a module around the given one, which it calls as a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad.nn.modules.module import Module

from . import regions
from .compiled_functions import compiled
from .guarded.calls import Calls
from .own_backends import calling
from .own_backends.graphs import Graphs, OwnBackend


class OptimizedModule(Module):
    """Calls ``_orig_mod``, and shows that module's attributes as its own; setting one sets it there.

    Another module may be set as ``_orig_mod``.
    """

    def __init__(
        self, mod: Module, options: regions.Options = regions.DEFAULT_OPTIONS, own: OwnBackend | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(options, own)
        self._modules["_orig_mod"] = mod
        del self.__dict__["training"]  # it is that of the module

    def _prepare(self, options: regions.Options, own: OwnBackend | None) -> None:
        """Note how the module is called; with a backend of the program's own ``forward`` is another one."""
        self.__dict__.update(_compile_options=options, _own_backend=own, _compiled_calls=Calls())
        if own is not None:
            graphs = Graphs(own)
            self.__dict__["forward"] = lambda *args, **kwargs: calling.run(
                self._modules["_orig_mod"], args, kwargs, options, graphs
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        own = self.__dict__
        return regions.run(self._modules["_orig_mod"], args, kwargs, own["_compile_options"], own["_compiled_calls"])

    @property
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return what compiles another function as this module is compiled."""
        return partial(compiled, options=self.__dict__["_compile_options"], own=self.__dict__["_own_backend"])

    def __getattr__(self, name: str) -> Any:
        inner = self.__dict__["_modules"]["_orig_mod"]
        return inner if name == "_orig_mod" else getattr(inner, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._modules["_orig_mod"])})

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
        return {name: value for name, value in state.items() if name not in ("_compiled_calls", "forward")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare(regions.Options(*state["_compile_options"]), state.get("_own_backend"))

    def __len__(self) -> int:
        return len(self._modules["_orig_mod"])

    def __getitem__(self, index: Any) -> Any:
        return self._modules["_orig_mod"][index]
