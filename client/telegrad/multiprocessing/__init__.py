"""Python's ``multiprocessing`` with the names that ``torch.multiprocessing`` adds.

A tensor is a handle on a session, and another process gets a copy of its elements. A process opens a session of its own
when it first makes a tensor.
"""

from __future__ import annotations

from multiprocessing import *  # noqa: F403
from multiprocessing import get_context
from typing import Any

from telegrad_protocol.errors import ArgumentError

from .spawn import ProcessContext as ProcessContext
from .spawn import ProcessException as ProcessException
from .spawn import ProcessExitedException as ProcessExitedException
from .spawn import ProcessRaisedException as ProcessRaisedException
from .spawn import spawn as spawn
from .spawn import start_processes as start_processes

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_context", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip


def get_all_sharing_strategies() -> set[str]:
    """The ways in which processes could share a tensor's memory, which is the server's: none is used."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """The way that PyTorch would use."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accept a strategy's name; it changes nothing."""
    if new_strategy not in get_all_sharing_strategies():
        raise ArgumentError(f"set_sharing_strategy: unknown strategy {new_strategy!r}")


def __getattr__(name: str) -> Any:
    return getattr(get_context(), name)
