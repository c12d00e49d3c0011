"""Launches on operands and results, from what starts a kernel or calls a library with their addresses.

Most prepared kernels end here. Where the worker has C, launches are objects of it. Knows nothing of operations.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from server.engine.device.launch_queue import LaunchQueue
from server.engine.in_c.launches import operand_launch, queued_call
from server.engine.value import Launch

Place: TypeAlias = tuple[int, int, int]
"""Where an address comes from: the source, the number of an argument or of a result, and an offset in bytes."""
ARGUMENT, RESULT, CONSTANT, WORKSPACE, NUMBER = range(5)
"""Sources: of constants the offset is the number itself, of workspaces it is the size in bytes.

A number is a Python number among the arguments; its offset is the size of the floating-point type that the kernel gets
it in, 4 or 8 bytes, and the kernel's parameter is given as the integer of the same bits.
"""
_FORMS = {4: "<f", 8: "<d"}
NOTHING: Place = (CONSTANT, 0, 0)


def on_operands(backend: Any, fire: Callable[..., None], places: list[Place]) -> Launch:
    """Return a launch that calls ``fire`` with the backend's stream and the addresses of places.

    The address of an operand that is absent is 0.
    """
    in_c: Launch | None = operand_launch(backend, fire, places)
    if in_c is not None:
        return in_c

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, *[_address(backend, args, outs, place) for place in places])

    return launch


def _address(backend: Any, args: tuple[Any, ...], outs: tuple[Any, ...], place: Place) -> int:
    source, number, offset = place
    if source == CONSTANT:
        return offset
    if source == WORKSPACE:
        return backend.workspace(offset).pointer  # type: ignore[no-any-return]
    if source == NUMBER:
        return int.from_bytes(struct.pack(_FORMS[offset], args[number]), "little")
    value = args[number] if source == ARGUMENT else outs[number]
    return 0 if value is None else value.storage.block.pointer + offset


def queued(
    queue: LaunchQueue, function: Callable[..., None], arguments: tuple[Any, ...], places: tuple[int, ...],
    before: Callable[[Any], None] | None = None, kept: Any = None,
) -> Callable[..., None]:  # fmt: skip
    """Return a call of a library that waits where launches do.

    It takes the stream and values, which become those of the ``arguments`` that ``places`` name, in this order. One
    more value may follow: ``before`` is called with it first, where there is one. ``kept`` lives as long as the call.
    """
    in_c: Callable[..., None] | None = queued_call(queue, function, arguments, places, before, kept)
    if in_c is not None:
        return in_c

    def perform(*values: Any, _kept: Any = kept) -> None:
        if before is not None:
            before(values[len(places)])
        given: Sequence[Any] = list(arguments)
        for place, value in zip(places, values, strict=False):
            given[place] = value  # type: ignore[index]
        function(*given)

    return lambda *values: queue.launch(perform, *values)
