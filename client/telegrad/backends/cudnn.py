"""Convolutions, recurrent layers and attention on GPUs: switches that are attributes of this module.

``enabled`` is whether convolutions and recurrent layers use cuDNN at all. ``allow_tf32`` lets them compute float32 with
TensorFloat-32, ``deterministic`` makes sums in a fixed order.

``enabled`` and ``benchmark_limit`` are kept, and change nothing: the server has no other kernels for most shapes.

Each shape is planned for when it is first met; with ``benchmark`` several plans are timed then, the fastest is used.
``graph_stats`` tells what that has cost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from telegrad._session import settings as _settings
from telegrad._session.current import current_session

_SWITCHES = {
    "allow_tf32": "cudnn_allow_tf32", "deterministic": "cudnn_deterministic", "benchmark": "cudnn_benchmark",
    "enabled": "cudnn_enabled",
}  # fmt: skip


_kept: dict[str, Any] = {"enabled": True, "benchmark_limit": 10}


def set_flags(
    _enabled: bool | None = None, _benchmark: bool | None = None, _benchmark_limit: int | None = None,
    _deterministic: bool | None = None, _allow_tf32: bool | None = None, _fp32_precision: str = "none",
    _depthwise_kernel: str = "auto",
) -> tuple[Any, ...]:  # fmt: skip
    """Set those switches that are not None, and return what all of them were."""
    module = sys.modules[__name__]
    values = {
        "enabled": _enabled, "benchmark": _benchmark, "benchmark_limit": _benchmark_limit,
        "deterministic": _deterministic, "allow_tf32": _allow_tf32,
    }  # fmt: skip
    before = tuple([getattr(module, name) for name in values])
    for name, value in values.items():
        if value is not None:
            setattr(module, name, value)
    return (*before, "none", "auto")


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
    allow_tf32: bool = True, fp32_precision: str = "none", depthwise_kernel: str = "auto",
) -> Iterator[None]:  # fmt: skip
    """Set the switches within a block."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN computes with a tensor: with those on a GPU."""
    return bool(tensor.is_cuda) and is_available()


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
        if name in _kept:
            return _kept[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SWITCHES:
            _settings.put(_SWITCHES[name], _settings.require_bool(name, value))
        elif name in _kept:
            _kept[name] = type(_kept[name])(value)
        elif name.startswith("_") or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            there = ", ".join((*_SWITCHES, *_kept))
            raise AttributeError(f"module {self.__name__!r} has no switch {name!r}; there are {there}")


sys.modules[__name__].__class__ = _Module
