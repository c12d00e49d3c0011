"""What the server's dispatcher does with each call of a block, as ``TORCH_SHOW_DISPATCH_TRACE`` shows it in PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from telegrad._session.current import current_session
from telegrad._session.thread_modes import thread
from telegrad_protocol.messages import Mode


@contextmanager
def show(file: TextIO | None = None) -> Iterator[list[str]]:
    """Print a line for each call of the session and each kernel that it goes through, at the end of the block.

    A line is such as ``[call] op=add, keys=[Autograd, CPU]``. They go to ``file``, or to the standard error stream, and
    into the list that is yielded. Two round trips; calls are slower in the block.
    """
    session = current_session()
    lines: list[str] = []
    session.query("trace")  # what was traced before, which is not shown
    session.submit(Mode("trace", True), thread.modes)
    try:
        yield lines
    finally:
        lines += session.query("trace")
        session.submit(Mode("trace", False), thread.modes)
        print("\n".join(lines), file=sys.stderr if file is None else file)
