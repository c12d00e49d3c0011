"""Whether deterministic mode fills new memory: an attribute of this module, as in PyTorch."""

from __future__ import annotations

import sys
from types import ModuleType

from telegrad._session import settings as _settings


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether ``empty`` and its like are filled with NaN or the largest number, in deterministic mode."""
        return bool(_settings.get("fill_uninitialized_memory"))

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        _settings.put("fill_uninitialized_memory", _settings.require_bool("fill_uninitialized_memory", mode))


sys.modules[__name__].__class__ = _Deterministic
