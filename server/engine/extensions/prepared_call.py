"""A call of a kind that came before: what stays the same is written once, and new memory is made beforehand."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from server.engine import context
from server.engine.autograd.inplace import requires_grad
from server.engine.in_c.extension_calls import MOST_READY, Calling, calling
from server.engine.value import CHANGING, Backend, Value
from telegrad_protocol.meta import CPU, Meta

from . import words
from .library import Library, gpu_of
from .runtime import READS_DATA, READY_ADDRESS, READY_COUNT, STREAMS

READY_BYTES: Final = 16 << 20
"""So much memory is made before a call at most: what takes longer to fill than to ask for need not be ready."""
_HANDLE, _ADDRESS, _REQUIRES_GRAD = 1, 2, 5


class PreparedCall:
    """A function with arguments of these kinds. Tensors in lists are not prepared for: ``of`` returns None."""

    def __init__(self, library: Library, number: int, name: str, args: list[Any]) -> None:
        self._library, self._number, self._name = library, number, name
        self._runtime = runtime = library.runtime
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
        backends = context.current.backends
        self._streams = [
            (STREAMS + (device.index or 0), backend) for device, backend in backends.items() if device is not CPU
        ]
        self._ready: list[tuple[int, Meta, Backend]] = []
        entries = b""
        asked = runtime.emptied
        if asked and sum([meta.nbytes for _, meta in asked]) <= READY_BYTES:
            for request, meta in asked:
                self._ready.append((len(entries) // 8, meta, backends[meta.device]))
                entries += (len(request) // 8).to_bytes(8, "little") + bytes(16) + request
        self._entries, self._entry_words = _shared(entries or bytes(8))
        self._entries_address = ctypes.addressof(self._entries)
        self.call: Calling = self._bound() or self._call
        """Makes the call on tensors that have these numbers, given values by number and the arguments of a call.

        Returns the result and the tensors that the call was given, or a result alone, which is the only memory that was
        made for the call. None tells that nothing was done, since a tensor is of another kind.
        """

    @staticmethod
    def of(library: Library, number: int, name: str, args: list[Any]) -> PreparedCall | None:
        """Prepare for calls like one that has just been made; None where arguments are lists or instances."""
        if any([arg.__class__ in (list, tuple, dict, words.Instance) for arg in args]):
            return None
        return PreparedCall(library, number, name, args)

    def _bound(self) -> Calling | None:
        """Return ``call`` in C; None where another GPU has to be made the current one, or much is ready."""
        if self._gpu > 0 or len(self._ready) > MOST_READY:
            return None
        tensors = [
            (position, at + _ADDRESS, at + _REQUIRES_GRAD, meta, skipped if meta.numel else -1)
            for position, at, meta, skipped in self._tensors
        ]
        ready = [
            (at + 1, at + 2, backend, backend.key, meta.extent * meta.dtype.itemsize, meta, not meta.numel)
            for at, meta, backend in self._ready
        ]
        runtime = self._runtime
        streams = [(place, backend, getattr(backend, "launches", None)) for place, backend in self._streams]
        return calling(
            self._library.address, self._number, ctypes.addressof(runtime.memory), self._address, self._entries_address,
            tuple(tensors), tuple(ready), tuple(streams), runtime.values, runtime, self._reads_host, self._library,
            self._name, self._call, self._end,
        )  # fmt: skip

    def _call(self, values: dict[int, Any], args: list[Any]) -> tuple[Any, list[Value]] | None:
        """``call``, without C."""
        for _, backend in self._streams:
            backend.flush()  # the function may launch kernels of its own
        tensors = self._arguments(values, args)
        return None if tensors is None else (self._run(tensors), tensors)

    def _end(self, failed: int) -> tuple[Any, list[Value]]:
        """End a call that C has made, whose function has ``failed`` or returned anything but what was made for it."""
        given = self._runtime.arguments
        return self._library.finish(failed, self._name), given

    def _arguments(self, values: dict[int, Any], args: list[Any]) -> list[Value] | None:
        """Write the tensors of a call into its words, and return them; None where they are of another kind."""
        given = []
        at_words = self._words
        for position, at, meta, skipped in self._tensors:
            value = _named(values, args, position)
            if value.__class__ is not Value or value.meta is not meta:
                return None
            value.storage.elements = CHANGING
            if meta.numel:
                at_words[at + _ADDRESS] = value.storage.block.pointer + skipped
            at_words[at + _REQUIRES_GRAD] = value.autograd is not None and requires_grad(value)
            given.append(value)
        return given

    def _run(self, given: list[Value]) -> Any:
        runtime, library = self._runtime, self._library
        places = runtime.places
        runtime.arguments, runtime.emptied = given, []
        places[READS_DATA] = self._reads_host
        runtime.enter_modes(self._gpu)
        for place, backend in self._streams:
            places[place] = backend.stream
        handles = self._hold([backend.empty(meta) for _, meta, backend in self._ready])
        failed = library.enter(self._number, self._name, self._address, self._gpu)
        unused = abs(places[READY_COUNT])
        places[READY_COUNT] = 0
        for handle in handles[len(handles) - unused :]:
            del runtime.values[handle]
        return library.finish(failed, self._name)

    def _hold(self, made: list[Value]) -> list[int]:
        """Write down the memory that is ready, in the order in which it will be asked for; returns its handles."""
        runtime, entries = self._runtime, self._entry_words
        handles = []
        for (at, meta, _), value in zip(self._ready, made):
            entries[at + 1] = handle = runtime.hold(value)
            entries[at + 2] = value.storage.block.pointer if meta.numel else 0
            handles.append(handle)
        places = runtime.places
        places[READY_COUNT], places[READY_ADDRESS] = len(handles), self._entries_address
        return handles


def _named(values: dict[int, Any], args: list[Any], position: int) -> Any:
    """Return what an argument names; None where it names nothing, as whatever a client sends may."""
    try:
        return values.get(args[position][0])
    except (IndexError, KeyError, TypeError):
        return None


def _shared(data: bytes) -> tuple[ctypes.Array[ctypes.c_int64], memoryview]:
    """Return memory that C++ can read, with these bytes, and a view of its words."""
    memory = (ctypes.c_int64 * (len(data) // 8)).from_buffer_copy(data)
    return memory, memoryview(memory).cast("B").cast("q")
