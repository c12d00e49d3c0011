"""Libraries of extensions in this process: what their functions are called and take, and calls of them."""

from __future__ import annotations

import builtins
import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from server.crash_notes import notes
from server.disclosure import without_folders
from server.engine import context
from server.engine.value import Value
from telegrad_protocol import errors
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExtensionError,
    IndexOutOfRangeError,
    LinearAlgebraError,
    NotSupportedError,
    OutOfMemoryError,
    TelegradError,
)
from telegrad_protocol.meta import CPU, Device

from . import words
from .nodes import ExtensionNode
from .runtime import BUFFER, DEAD_COUNT, READS_DATA, Runtime
from .words import Reader

_DIFFERENTIATE: Final = "telegrad::differentiate"
_ERRORS: Final[dict[str, type[TelegradError]]] = {
    "IndexError": IndexOutOfRangeError, "ValueError": ArgumentError, "TypeError": ArgumentTypeError,
    "NotImplementedError": NotSupportedError, "OutOfMemoryError": OutOfMemoryError,
    "LinAlgError": LinearAlgebraError, "KeyError": errors.ExtensionKeyError, "MemoryError": errors.ExtensionMemoryError,
    "AttributeError": errors.ExtensionAttributeError, "ImportError": errors.ExtensionImportError,
    "BufferError": errors.ExtensionBufferError, "OverflowError": errors.ExtensionOverflowError,
    "StopIteration": errors.ExtensionStopIteration,
}  # fmt: skip


@cache
def runtime() -> Runtime:
    """Return the worker's side of all extensions, made with the first of them."""
    return Runtime()


class Parameter(NamedTuple):
    """A parameter of a function; ``default`` is a list of one value, or empty."""

    name: str
    type: str
    default: list[Any]


class Function(NamedTuple):
    """A function of a library: its number there, and how Python sees it."""

    number: int
    name: str
    doc: str
    result: str
    is_exported: bool
    owner: int
    """The number of the class that it belongs to; -1 for a function of the module."""
    role: int
    """What it is there, as ``Role`` in ``binding.h`` has it."""
    unnamed: int
    """So many parameters are given by place alone."""
    by_place: int
    """So many may be given by place; -1 stands for all."""
    parameters: list[Parameter]


class Library:
    """A library that was loaded from a file; it stays as long as the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runtime = shared = runtime()
        try:
            library = ctypes.PyDLL(str(path))  # calls keep the interpreter's lock: nothing else runs in this process
            load, self._entry = library.telegrad_load, library.telegrad_call
        except (OSError, AttributeError) as error:
            raise ExtensionError(f"the extension's library cannot be loaded: {without_folders(str(error))}") from None
        load.argtypes, load.restype = [ctypes.c_void_p], ctypes.c_int64
        self.address = ctypes.cast(self._entry, ctypes.c_void_p).value or 0
        """The address of the function that calls the library's functions."""
        self.release = library.telegrad_release
        self.release.argtypes, self.release.restype = [ctypes.c_int64], None
        self._dropped = library.telegrad_drop
        self._dropped.argtypes, self._dropped.restype = [ctypes.c_int64], None
        self._drop = self.drop  # one object, by which instances are known to be this library's
        self.nodes: WeakValueDictionary[int, ExtensionNode] = WeakValueDictionary()
        """Nodes of the backward graph, by the numbers that the library knows them by."""
        self._entry.argtypes, self._entry.restype = [ctypes.c_int64, ctypes.c_void_p], ctypes.c_int64
        if load(ctypes.addressof(shared.memory)):
            raise self._raised("load")
        functions, self.operators, self.attributes, self.doc, classes, modules = Reader(
            shared.result(), _no_tensor
        ).value()
        self.classes: list[tuple[Any, ...]] = classes
        """The classes that it gives Python, as ``BuildExtension`` says."""
        self.modules: list[tuple[str, str]] = modules
        """Paths and documentation of modules within the module."""
        self.functions = [
            Function._make((number, *told, [Parameter(p, kind, default) for p, kind, *default in listed]))
            for number, (*told, listed) in enumerate(functions)
        ]
        self._differentiate = next(f.number for f in self.functions if f.name == _DIFFERENTIATE)
        shared.end_call()

    def differentiate(self, node: ExtensionNode, number: int, gradients: list[Value | None]) -> list[Value | None]:
        """Return the gradients of what a function of the library was applied to."""
        results: list[Value | None] = self.call(self._differentiate, node.name, [number, gradients])
        return results

    def drop(self, number: int) -> None:
        """Drop an instance of a class, and the values that it alone held; another function may be running."""
        before = self.runtime.places[DEAD_COUNT]
        self._dropped(number)
        self.runtime.drain(before)

    def call(self, number: int, name: str, args: list[Any]) -> Any:
        """Call a function on values, numbers, texts and lists of these; returns the same."""
        shared = self.runtime
        expected = len(self.functions[number].parameters)
        if len(args) != expected:  # C++ would read behind the last one
            raise ArgumentTypeError(f"{name}: expected {expected} arguments, got {len(args)}")
        shared.places[READS_DATA] = 0
        shared.arguments, shared.emptied = [], []
        try:
            parts = [words.encode(arg, self._hand_over) for arg in args]
        except (struct.error, UnicodeEncodeError, RecursionError) as error:
            shared.end_call()
            raise ArgumentTypeError(f"{name}: an argument has no counterpart in C++: {error}") from None
        gpu = gpu_of(shared.arguments)
        shared.prepare(gpu)
        return self.finish(self.enter(number, name, b"".join(parts), gpu), name)

    def _hand_over(self, value: Any) -> bytes:
        """Return a tensor or an instance of a class as words. What a function returns may depend on an instance."""
        if value.__class__ is not words.Instance:
            return self.runtime.hand_over_argument(value)
        if value.drop is not self._drop:
            raise ArgumentTypeError("an instance of another extension's class")
        self.runtime.places[READS_DATA] = 1
        return value.words()

    def enter(self, number: int, name: str, arguments: bytes | int, gpu: int) -> int:
        """Enter a function with the words of its arguments, or their address; returns 1 where it has thrown."""
        notes.enter(name)
        self.runtime.library = self
        if gpu <= 0:
            failed: int = self._entry(number, arguments)
        else:  # it makes the GPU the current one of this process
            with context.current.backends[Device("cuda", gpu)].as_current():
                failed = self._entry(number, arguments)
        notes.leave()
        return failed

    def finish(self, failed: int, name: str) -> Any:
        """Return what a call has left as its result; raises what it has thrown."""
        shared = self.runtime
        try:
            if failed:
                raise self._raised(name)
            places = shared.places
            if places[BUFFER] == words.TENSOR:
                return shared.value_of(places[BUFFER + 1])
            return Reader(shared.result(), shared.value_of, self._drop).value()
        finally:
            shared.end_call()

    @property
    def has_read_data(self) -> bool:
        """Whether the last call could see elements of tensors, so that the shapes of its results may depend on them."""
        return bool(self.runtime.places[READS_DATA])

    def _raised(self, name: str) -> Exception:
        """Return the error that the last call has ended with."""
        reader = Reader(self.runtime.result(), _no_tensor)
        kind, message = reader.value(), reader.value()
        raised = self.runtime.raised
        if raised is not None and message == str(getattr(raised, "message", None) or raised)[:16000]:
            return raised
        return _ERRORS.get(kind, ExtensionError)(f"{name}: {message}" if name == "load" else message)


def gpu_of(values: list[Value]) -> int:
    """Return the index of the GPU that a call on these values works on; -1 where there is none."""
    for value in values:
        device = value.meta.device
        if device is not CPU:
            return device.index or 0
    return 0 if len(context.current.backends) > 1 else -1


@cache
def load(path: Path) -> Library:
    """Return the library of a file, loaded once in this process."""
    return Library(path)


def _no_tensor(handle: int) -> Any:
    raise builtins.LookupError(f"no tensor {handle} outside of calls")
