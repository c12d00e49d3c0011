"""The worker's side of all extensions in this process: their values by handles, and what they ask for while they run.

A handle stands for a value from when an extension gets it until it says that it has dropped it. What it has dropped
stands in a list in shared memory, which is read with its next request and at the end of a call.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from server.engine import context
from server.engine.autograd.inplace import requires_grad
from server.engine.in_c import extension_calls
from server.engine.value import CHANGING, Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import InternalError, OutOfMemoryError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import CPU, Meta

from . import words
from .commands import as_given
from .nodes import record
from .operations import reads_data, run
from .words import Reader

ABI, CALLBACK, RESULT_COUNT, RESULT_ADDRESS, DEAD_COUNT, CURRENT_DEVICE, READS_DATA, DEFAULT_DTYPE, GRAD_MODE = range(9)
READY_COUNT, READY_ADDRESS, ASKED = 9, 10, 11
STREAMS, DEAD, BUFFER, WORDS = 16, 64, 1024, 8192
ABI_VERSION: Final = 2
EMPTY, CALL, ITEM, HAS_CUDA, MANUAL_SEED, SET_GRAD_MODE, RUN, KEEP, DRAIN, NODE, SAVED, WARN = range(12)
_HEAD: Final = struct.Struct("<qqqqqq")
_AFTER_RESULTS: Final = KEEP
"""Verbs from here on may come when results stand in the answer already, and among what was dropped."""
_ERROR_KINDS: Final = ((IndexError, 1), (ValueError, 2), (TypeError, 3), (NotImplementedError, 4))
_MOST_METAS: Final = 1 << 12
_Callback = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Runtime:
    """What extensions and their worker share."""

    def __init__(self) -> None:
        self.memory = (ctypes.c_int64 * WORDS)()
        self.places = memoryview(self.memory).cast("B").cast("q")
        self.values: dict[int, Value] = {}
        self.library: Any = None
        """The ``library.Library`` whose function is running."""
        self.arguments: list[Value] = []
        """Those of the call that is going on; the first one has the handle -1."""
        self.emptied: list[tuple[bytes, Meta]] = []
        """What new memory the call has asked for, which was not ready."""
        self.raised: Exception | None = None
        """What the last request raised; an extension that lets it pass fails with it."""
        self._last_handle = 0
        self._modes: tuple[Any, ...] = ()
        """Whether gradients are recorded, inference, and the default dtype, as extensions were told of them last."""
        self._late: list[int] = []
        self._metas: dict[bytes, Meta] = {}
        self._answer = b""
        self._callback = _Callback(self._requested)
        self._verbs: dict[int, Callable[[bytes], Any]] = {
            EMPTY: self._empty, CALL: self._call, ITEM: self._item, DRAIN: self._drain_late, HAS_CUDA: self._has_cuda,
            MANUAL_SEED: self._manual_seed, SET_GRAD_MODE: self._set_grad_mode, RUN: self._run, KEEP: self._keep,
            NODE: self._node, SAVED: self._saved, WARN: _warn,
        }  # fmt: skip
        extension_calls.prepare(
            {
                "DEAD_COUNT": DEAD_COUNT, "READS_DATA": READS_DATA, "READY_COUNT": READY_COUNT, "ASKED": ASKED,
                "READY_ADDRESS": READY_ADDRESS, "DEAD": DEAD, "BUFFER": BUFFER, "TENSOR": words.TENSOR,
                "CURRENT_DEVICE": CURRENT_DEVICE,
            }
        )  # fmt: skip
        self.places[ABI] = ABI_VERSION
        self.places[CALLBACK] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def value_of(self, handle: int) -> Value:
        """Return the value that an extension knows by a handle."""
        return self.values[handle] if handle > 0 else self.arguments[-handle - 1]

    def hand_over_argument(self, value: Value) -> bytes:
        """Add a value to the arguments of a call, and return the words by which the extension knows it."""
        self.arguments.append(value)
        return self._describe(-len(self.arguments), value)

    def hand_over(self, value: Value) -> bytes:
        """Give a value a handle, and return the words by which an extension knows it."""
        return self._describe(self.hold(value), value)

    def hold(self, value: Value) -> int:
        """Hold a value for an extension, and return its handle."""
        self._last_handle = handle = self._last_handle + 1
        self.values[handle] = value
        return handle

    def _describe(self, handle: int, value: Value) -> bytes:
        meta = value.meta
        value.storage.elements = CHANGING
        address = value.storage.block.pointer + meta.offset * meta.dtype.itemsize if meta.numel else 0
        device = -1 if meta.device is CPU else meta.device.index or 0
        if device < 0:
            self.places[READS_DATA] = 1
        flag = value.autograd is not None and requires_grad(value)
        head = _HEAD.pack(words.TENSOR, handle, address, words.TYPE_NUMBERS[meta.dtype], device, flag)
        return head + words.layout_words(meta)

    def prepare(self, device: int) -> None:
        """Tell extensions the modes, the streams and the device that the next call runs under."""
        self.enter_modes(device)
        places = self.places
        for backend in context.current.backends.values():
            if backend.device is not CPU:
                places[STREAMS + (backend.device.index or 0)] = backend.stream

    def enter_modes(self, device: int) -> None:
        """Tell extensions the modes and the device that the next call runs under."""
        current = context.current
        modes = current.grad_enabled, current.inference, dtypes._default
        if modes != self._modes:
            self._modes = modes
            self.places[GRAD_MODE] = current.is_recording
            self.places[DEFAULT_DTYPE] = words.TYPE_NUMBERS[dtypes._default]
        self.places[CURRENT_DEVICE] = device

    def result(self) -> bytes:
        """Return the words that an extension has left as its answer."""
        places = self.places
        count, address = places[RESULT_COUNT], places[RESULT_ADDRESS]
        if address:
            return ctypes.string_at(address, 8 * count)
        return places[BUFFER : BUFFER + count].tobytes()

    def drain(self, first: int = 0) -> None:
        """Forget the values that extensions have dropped, but for the ``first`` ones."""
        places, values = self.places, self.values
        count = places[DEAD_COUNT]
        places[DEAD_COUNT] = min(first, count)
        for place in range(DEAD + first, DEAD + count):
            values.pop(places[place], None)

    def end_call(self) -> None:
        """Forget all that was dropped in a call whose results were taken."""
        if self.places[DEAD_COUNT]:
            self.drain()
        self.arguments = []
        self.raised = None
        if self._late:
            for handle in self._late:
                self.values.pop(handle, None)
            self._late.clear()

    def _requested(self, verb: int, address: int, count: int) -> int:
        self.places[ASKED] = 1
        try:
            if verb < _AFTER_RESULTS and self.places[DEAD_COUNT]:
                self.drain()
            answer = self._verbs[verb](ctypes.string_at(address, 8 * count))
            if answer is not None:
                self._reply(answer)
            return 0
        except Exception as error:
            self.raised = error
            kind = 5 if isinstance(error, (MemoryError, OutOfMemoryError)) else 0
            kind = kind or next((number for base, number in _ERROR_KINDS if isinstance(error, base)), 0)
            message = str(getattr(error, "message", None) or error)[:16000]
            self._reply(struct.pack("<q", kind) + words.text_words(message))
            return 1

    def _reply(self, answer: bytes) -> None:
        places, count = self.places, len(answer) // 8
        if count <= WORDS - BUFFER:
            places[RESULT_ADDRESS] = 0
            places[BUFFER : BUFFER + count] = memoryview(answer).cast("q")
        else:
            self._answer = answer
            places[RESULT_ADDRESS] = ctypes.cast(ctypes.c_char_p(answer), ctypes.c_void_p).value or 0

    def _empty(self, asked: bytes) -> None:
        """Make a tensor of uninitialised memory: type, device, number of dimensions, sizes, strides."""
        meta = self._metas.get(asked) or self._new_meta(asked)
        value = context.current.backends[meta.device].empty(meta)
        self.emptied.append((asked, meta))
        places = self.places
        places[RESULT_ADDRESS] = 0
        places[BUFFER] = self.hold(value)
        places[BUFFER + 1] = value.storage.block.pointer if meta.numel else 0
        if meta.device is CPU:
            places[READS_DATA] = 1

    def _new_meta(self, asked: bytes) -> Meta:
        dtype, device, ndim, *rest = memoryview(asked).cast("q")
        sizes, strides = Size(rest[:ndim]), Size(rest[ndim:])
        if any(stride < 0 for stride in strides):
            raise ShapeError(f"empty: negative strides {tuple(strides)}")
        meta = Meta.of(sizes, words.TYPES[dtype], words.device_of(device), strides, 0)
        if len(self._metas) >= _MOST_METAS:
            self._metas.clear()
        self._metas[asked] = meta
        return meta

    def _call(self, asked: bytes) -> bytes:
        return words.encode(self._results(asked), self.hand_over)

    def _run(self, asked: bytes) -> None:
        self._results(asked)

    def _results(self, asked: bytes) -> Any:
        """Run the operation that is asked for by name: the name, the number of arguments, and these."""
        reader = Reader(asked, self.value_of)
        name = reader.value()
        given = [reader.value() for _ in range(reader.word())]
        args = [item for item in given if item.__class__ is not words.Keyword]
        kwargs = {item.name: item.value for item in given if item.__class__ is words.Keyword}
        results = run(name, args, kwargs)
        if reads_data(name, results):
            self.places[READS_DATA] = 1
        self._flush()
        return results

    def _flush(self) -> None:
        """Launch what waits: the extension may launch kernels of its own behind it."""
        for backend in context.current.backends.values():
            backend.flush()

    def _item(self, asked: bytes) -> bytes:
        value = Reader(asked, self.value_of).value()
        if value.numel != 1:
            raise ShapeError(f"item: a Tensor with {value.numel} elements cannot be converted to Scalar")
        self.places[READS_DATA] = 1
        array = value.backend.to_host(value.array)
        number = array.reshape(-1)[0]
        plain = number.item() if isinstance(number, np.generic) else number
        return words.encode(plain if isinstance(plain, (bool, int, float, complex)) else float(plain), _no_tensor)

    def _keep(self, asked: bytes) -> bytes:
        """Hold an argument that outlives its call."""
        return struct.pack("<q", self.hold(self.arguments[struct.unpack("<q", asked)[0]]))

    def _node(self, asked: bytes) -> None:
        """Make a node of the backward graph whose gradients the library that is running computes."""
        reader = Reader(asked, self.value_of)
        number, library = reader.word(), self.library
        node = record(library, reader.value, number)
        library.nodes[number] = node

    def _saved(self, asked: bytes) -> bytes:
        """Return what the node saved whose gradients are asked for."""
        return words.encode(self.library.nodes[struct.unpack("<q", asked)[0]].saved(), self.hand_over)

    def _drain_late(self, asked: bytes) -> None:
        """Take the full list of dropped handles; the values stay until the call ends, as they may be its results."""
        places = self.places
        count = places[DEAD_COUNT]
        self._late.extend(places[DEAD : DEAD + count])
        places[DEAD_COUNT] = 0

    def _has_cuda(self, asked: bytes) -> bytes:
        return struct.pack("<q", any(device is not CPU for device in context.current.backends))

    def _manual_seed(self, asked: bytes) -> None:
        for generator in context.current.generators.values():
            generator.manual_seed(struct.unpack("<q", asked)[0] & (1 << 64) - 1)

    def _set_grad_mode(self, asked: bytes) -> bytes:
        current = context.current
        before = current.grad_enabled
        current.grad_enabled = bool(struct.unpack("<q", asked)[0])
        self.places[GRAD_MODE] = current.is_recording
        return struct.pack("<q", before)


def _warn(asked: bytes) -> None:
    """Tell the client of a warning: its text, and the file and line of C++ that it comes from."""
    reader = Reader(asked, _no_tensor)
    text, file, line = reader.value(), reader.value(), reader.value()
    context.current.warn(f"{text} (Triggered internally at {as_given(file)}:{line}.)")


def _no_tensor(value: Any) -> bytes:
    raise InternalError(f"extension: a {type(value).__name__} is no value of C++")
