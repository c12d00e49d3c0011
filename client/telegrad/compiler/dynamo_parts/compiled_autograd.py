"""``torch._dynamo.compiled_autograd``: blocks whose backward passes are compiled. The server replays all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _enable(
    compiler_fn: Callable[..., Any], dynamic: bool = True, ignore_active_disable_ctx: bool = True
) -> Iterator[None]:  # fmt: skip
    """Change nothing: the compiler is not asked, and gradients are those of the block without it."""
    yield


@contextmanager
def _disable() -> Iterator[None]:
    """Change nothing: no compiler is asked for backward passes."""
    yield


def reset() -> None:
    """Do nothing, since no pass is kept in this process."""
