"""A call of a kind that came before: what stays the same is written once, and new memory is made beforehand."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from server.engine import context
from server.engine.autograd.inplace import requires_grad
from server.engine.value import CHANGING, Value
from telegrad_protocol.meta import CPU, Device, Meta

from . import words
from .library import Library, gpu_of
from .runtime import READS_DATA, READY_ADDRESS, READY_COUNT

READY_BYTES: Final = 16 << 20
"""So much memory is made before a call at most: what takes longer to fill than to ask for need not be ready."""
_HANDLE, _ADDRESS, _REQUIRES_GRAD = 1, 2, 5


class PreparedCall:
    """A function with arguments of these kinds. Tensors in lists are not prepared for: ``of`` returns None."""

    def __init__(self, library: Library, number: int, name: str, args: list[Any]) -> None:
        self._library, self._number, self._name = library, number, name
        runtime = library.runtime
        self._tensors: list[tuple[int, int, Meta, int]] = []
        runtime.arguments = []
        encoded = b""
        for position, arg in enumerate(args):
            if arg.__class__ is Value:
                meta = arg.meta
                self._tensors.append((position, len(encoded) // 8, meta, meta.offset * meta.dtype.itemsize))
            encoded += words.encode(arg, runtime.hand_over_argument)
        self._gpu = gpu_of(runtime.arguments)
        runtime.arguments = []
        self._memory, self._words = _shared(encoded)
        self._address = ctypes.addressof(self._memory)
        self._reads_host = any([meta.device is CPU for _, _, meta, _ in self._tensors])
        self._ready: list[tuple[int, Meta, Device]] = []
        entries = b""
        asked = runtime.emptied
        if asked and sum([meta.nbytes for _, meta in asked]) <= READY_BYTES:
            for request, meta in asked:
                self._ready.append((len(entries) // 8, meta, meta.device))
                entries += (len(request) // 8).to_bytes(8, "little") + bytes(16) + request
        self._entries, self._entry_words = _shared(entries or bytes(8))
        self._entries_address = ctypes.addressof(self._entries)

    @staticmethod
    def of(library: Library, number: int, name: str, args: list[Any]) -> PreparedCall | None:
        """Prepare for calls like one that has just been made; None where arguments hold tensors in lists."""
        if any([arg.__class__ in (list, tuple, dict) for arg in args]):
            return None
        return PreparedCall(library, number, name, args)

    def arguments(self, values: dict[int, Any], args: list[Any]) -> list[Value] | None:
        """Write the tensors of a call into its words, and return them; None where they are of another kind."""
        given = []
        at_words = self._words
        for position, at, meta, skipped in self._tensors:
            value = values.get(args[position][0])
            if value.__class__ is not Value or value.meta is not meta:
                return None
            value.storage.elements = CHANGING
            if meta.numel:
                at_words[at + _ADDRESS] = value.storage.block.pointer + skipped
            at_words[at + _REQUIRES_GRAD] = value.autograd is not None and requires_grad(value)
            given.append(value)
        return given

    def run(self, given: list[Value]) -> Any:
        """Make the call, and return its result."""
        library = self._library
        runtime = library.runtime
        places = runtime.places
        runtime.arguments = given
        runtime.emptied = []
        places[READS_DATA] = self._reads_host
        runtime.prepare(self._gpu)
        ready = self._ready
        handles = []
        if ready:
            backends, entries, hold = context.current.backends, self._entry_words, runtime.hold
            for at, meta, device in ready:
                value = backends[device].empty(meta)
                entries[at + 1] = handle = hold(value)
                entries[at + 2] = value.storage.block.pointer if meta.numel else 0
                handles.append(handle)
            places[READY_COUNT], places[READY_ADDRESS] = len(ready), self._entries_address
        failed = library.enter(self._number, self._name, self._address, self._gpu)
        if ready:
            unused = abs(places[READY_COUNT])
            places[READY_COUNT] = 0
            for handle in handles[len(handles) - unused :]:
                del runtime.values[handle]
        return library.finish(failed, self._name)


def _shared(data: bytes) -> tuple[ctypes.Array[ctypes.c_int64], memoryview]:
    """Return memory that C++ can read, with these bytes, and a view of its words."""
    memory = (ctypes.c_int64 * (len(data) // 8)).from_buffer_copy(data)
    return memory, memoryview(memory).cast("B").cast("q")
