"""Objects that take whatever settings of PyTorch's compiler a program sets, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

DYNAMO: Final[dict[str, Any]] = {
    "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256, "assume_static_by_default": True,
    "automatic_dynamic_shapes": True, "cache_size_limit": 8, "dynamic_shapes": True, "guard_nn_modules": True,
    "inline_inbuilt_nn_modules": True, "optimize_ddp": True, "recompile_limit": 8, "trace_numpy": True,
}  # fmt: skip
"""What programs read of ``torch._dynamo.config`` before they set it, where PyTorch's value is not false."""
FUNCTORCH: Final[dict[str, Any]] = {
    "activation_memory_budget": 1.0, "backward_pass_autocast": "same_as_forward", "cse": True, "donated_buffer": True,
    "enable_autograd_cache": True, "treat_parameters_as_free_to_save": True, "view_replay_for_aliased_outputs": True,
}  # fmt: skip
"""The same of ``torch._functorch.config``."""


class Config(ModuleType):
    """Settings of a compiler that is not there. Any can be set; one that was not set is a false object of this kind."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        inner = Config(f"{self.__name__}.{name}")
        setattr(self, name, inner)
        return inner

    @classmethod
    def registered(cls, name: str, **settings: Any) -> Config:
        """Return an object that ``import name`` gives, with these settings."""
        sys.modules[name] = config = cls(name)
        vars(config).update(settings)
        return config

    def __bool__(self) -> bool:
        return False

    @contextmanager
    def patch(self, *settings: Any, **named: Any) -> Iterator[None]:
        """Give settings other values for a block or a function: those of a dict, one with its value, or by name."""
        changes = {**(settings[0] if len(settings) == 1 else dict([settings] if settings else [])), **named}
        before = [self._set(name, value) for name, value in changes.items()]
        try:
            yield
        finally:
            for owner, last, value in reversed(before):
                setattr(owner, last, value)

    def _set(self, name: str, value: Any) -> tuple[Any, str, Any]:
        """Set what a name with dots stands for; returns whose attribute it is, and what it was."""
        *path, last = name.split(".")
        owner: Any = self
        for part in path:
            owner = getattr(owner, part)
        before = getattr(owner, last)
        setattr(owner, last, value)
        return owner, last, before
