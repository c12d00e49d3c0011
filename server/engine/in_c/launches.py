"""Launches that wait for each other, in C where that is compiled: the same as `device.launch_queue` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine.in_c.values import module

Work = Callable[[Any, Any], None]


def prepare(queue: type, most: int) -> None:
    """Have work wait in C; called once, with the class of queues, and how many launches wait at most."""
    if module is not None:
        module.prepare_launches({"LaunchQueue": queue, "most_waiting": most})


def deferring(queue: Any, work: Work) -> Work | None:
    """Return what ``LaunchQueue.deferring`` does; None where that is Python's."""
    return None if module is None else module.bound_to_queue((queue, work))


kernel_launch: Final[Callable[..., Any]] = (lambda *described: None) if module is None else module.prepare_kernel
"""Returns a launch of a kernel, as ``Kernel.prepare`` of ``cuda.runtime.launch`` says; None where that is Python's.

It takes the kernel, the queue, the function that starts a kernel, the kernel's address, its grid and block, bytes of
shared memory, how long the table of addresses is, the formats of what varies, and the constants.
"""
operand_launch: Final[Callable[..., Any]] = (lambda *described: None) if module is None else module.operand_launch
"""Returns what ``operands.on_operands`` does, by its arguments; None where that is Python's."""
queued_call: Final[Callable[..., Any]] = (lambda *described: None) if module is None else module.queued_call
"""Returns what ``operands.queued`` does, by its arguments; None where that is Python's."""
can_chain: Final = module is not None
"""Whether launches that never come again with the same arguments gain by waiting, too."""
chains: Final[Callable[..., Any]] = (lambda *described: None) if module is None else module.chains
"""Returns what makes launches of kernels in a row as one graph, as `cuda.runtime.chains` says; None without C.

It takes the addresses of the driver's functions, and how many launches all graphs may have together.
"""
relocated: Final[Callable[..., Any]] = (lambda *described: None) if module is None else module.relocated
"""Returns launches as one graph that is launched on other memory and with other numbers; None where that cannot be.

It takes the chains of their device, the launches, and rows of what is relocated: a kind, the number of a value or of a
result, and where its memory begins and ends, or the bits of a number.
"""
OF_VALUE, OF_MADE, OF_SINGLE, OF_DOUBLE = range(4)
"""Kinds of what is relocated: memory of a value, memory that is made, and numbers among the values, in two types."""
