"""Convolutions, recurrent layers and attention on GPUs: switches that are attributes of this module.

``enabled`` is whether convolutions and recurrent layers use cuDNN at all. ``allow_tf32`` lets them compute float32 with
TensorFloat-32, ``deterministic`` makes sums in a fixed order.

Each shape is planned for when it is first met; with ``benchmark`` several plans are timed then, the fastest is used.
``graph_stats`` tells what that has cost.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from telegrad._session import settings as _settings
from telegrad._session.current import current_session

_SWITCHES = {
    "allow_tf32": "cudnn_allow_tf32", "deterministic": "cudnn_deterministic", "benchmark": "cudnn_benchmark",
    "enabled": "cudnn_enabled",
}  # fmt: skip


def is_available() -> bool:
    """Whether the server computes convolutions and attention with cuDNN."""
    return version() is not None


def version() -> int | None:
    """The version of the server's cuDNN; None where it has none."""
    return graph_stats()["version"] or None


def graph_stats() -> dict[str, Any]:
    """How many graphs the server's process has built or refused since it began, and the seconds that took."""
    return current_session().query("cudnn_graphs")  # type: ignore[no-any-return]


class _Module(ModuleType):
    """A module some of whose attributes are the program's switches."""

    def __getattr__(self, name: str) -> Any:
        if name in _SWITCHES:
            return _settings.get(_SWITCHES[name])
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SWITCHES:
            _settings.put(_SWITCHES[name], _settings.require_bool(name, value))
        elif name.startswith("_") or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            raise AttributeError(f"module {self.__name__!r} has no switch {name!r}; there are {', '.join(_SWITCHES)}")


sys.modules[__name__].__class__ = _Module
