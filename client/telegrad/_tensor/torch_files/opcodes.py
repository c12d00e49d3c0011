"""The instructions of Python's pickles, as far as data need them, interpreted over plain values.

Names of modules and classes are not looked up here: ``Names`` says what a name in a pickle stands for, and refuses all
others. Knows nothing of tensors.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from telegrad_protocol.errors import ArgumentError

_MARK: Final = object()
_DEEPEST_KEY: Final = 8


class Names(Protocol):
    """What names in a pickle stand for."""

    objects: Any
    """Makes objects of classes: ``new``, ``call`` and ``restore``."""

    def named(self, module: str, name: str) -> Any:
        """Return a plain value, or a ``Builder``; raise NotSupportedError for a name that is not known."""

    def persistent(self, key: Any) -> Any:
        """Return what lies outside of the pickle under a key."""


class Builder:
    """What an instruction of a pickle may call: a function of telegrad's that makes a plain value or a tensor."""

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name = name
        self.make = make


def interpret(data: bytes, names: Names, where: str) -> Any:
    """Return the object that a pickle describes; ArgumentError for data that are damaged."""
    return _Machine(data, names, where).run()


def interpret_from(data: bytes, place: int, names: Names, where: str) -> tuple[Any, int]:
    """Return the object of the pickle that begins at a place, and the place behind it."""
    machine = _Machine(data, names, where, place)
    return machine.run(), machine.place


class _Machine:
    """Runs the instructions of one pickle, over a stack and a memo."""

    def __init__(self, data: bytes, names: Names, where: str, place: int = 0) -> None:
        self.data = data
        self.place = place
        self.names = names
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        try:
            while True:
                code = self.take(1)[0]
                if code == _STOP:
                    return self.stack.pop()
                _INSTRUCTIONS[code](self)
        except (LookupError, ValueError, TypeError, AttributeError, struct.error, RecursionError) as error:
            if isinstance(error, ArgumentError) and error.message.startswith("load: "):
                raise
            raise ArgumentError(f"load: the pickle in {self.where} is damaged: {error!r}") from error

    def take(self, count: int) -> bytes:
        end = self.place + count
        if count < 0 or end > len(self.data):
            raise ValueError("it ends too early")
        taken, self.place = self.data[self.place : end], end
        return taken

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        end = self.data.index(b"\n", self.place)
        return self.take(end + 1 - self.place)[:-1].decode()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_to_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def pop_tuple(self, count: int) -> None:
        values = tuple(self.stack[len(self.stack) - count :])
        if len(values) != count:
            raise IndexError("a tuple has too few elements")
        self.stack[len(self.stack) - count :] = [values]

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise TypeError("items for what is no dict")
        for key, value in zip(pairs[::2], pairs[1::2]):
            target[require_key(key)] = value

    def append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError("elements for what is no list")
        self.stack[-1].extend(values)

    def add(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], set):
            raise TypeError("elements for what is no set")
        self.stack[-1].update(map(require_key, values))

    def pop_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.push(self.names.named(_text(module), _text(name)))

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(arguments, tuple):
            raise TypeError("arguments that are no tuple")
        if isinstance(function, Builder):
            self.push(function.make(*arguments))
        else:
            self.push(self.names.objects.call(function, arguments))

    def new_object(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        self.push(self.names.objects.new(kind, arguments))

    def build(self) -> None:
        """Give an object attributes: of a state dict only the ``_metadata`` is kept."""
        state = self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict:
            self.names.objects.restore(self.stack[-1], state)
        elif not isinstance(state, dict):
            raise TypeError("attributes that are no dict")
        elif "_metadata" in state:
            self.stack[-1]._metadata = state["_metadata"]  # type: ignore[attr-defined]


def require_key(key: Any, depth: int = 0) -> Any:
    """Return what may be a key of a dict or an element of a set: its hash must need no deep recursion."""
    if isinstance(key, tuple):
        if depth == _DEEPEST_KEY:
            raise ValueError("a key that is nested too deeply")
        for element in key:
            require_key(element, depth + 1)
    return key


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name that is no text")
    return value


def _long(machine: _Machine, count: int) -> None:
    machine.push(int.from_bytes(machine.take(count), "little", signed=True))


_STOP: Final = ord(".")
_INSTRUCTIONS: Final[dict[int, Callable[[_Machine], Any]]] = {
    0x80: lambda m: m.take(1),  # protocol
    0x95: lambda m: m.take(8),  # frame
    ord("("): lambda m: m.push(_MARK),
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): lambda m: m.pop_to_mark(),
    ord("2"): lambda m: m.push(m.stack[-1]),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("J"): lambda m: m.push(m.number("<i")),
    ord("K"): lambda m: m.push(m.number("<B")),
    ord("M"): lambda m: m.push(m.number("<H")),
    0x8A: lambda m: _long(m, m.number("<B")),
    0x8B: lambda m: _long(m, m.number("<i")),
    ord("G"): lambda m: m.push(m.number(">d")),
    ord("X"): lambda m: m.push(m.take(m.number("<I")).decode("utf-8", "surrogatepass")),
    0x8C: lambda m: m.push(m.take(m.number("<B")).decode("utf-8", "surrogatepass")),
    0x8D: lambda m: m.push(m.take(m.number("<Q")).decode("utf-8", "surrogatepass")),
    ord("U"): lambda m: m.push(m.take(m.number("<B")).decode("latin-1")),
    ord("T"): lambda m: m.push(m.take(m.number("<i")).decode("latin-1")),
    ord("B"): lambda m: m.push(m.take(m.number("<I"))),
    ord("C"): lambda m: m.push(m.take(m.number("<B"))),
    0x8E: lambda m: m.push(m.take(m.number("<Q"))),
    0x96: lambda m: m.push(bytearray(m.take(m.number("<Q")))),
    ord(")"): lambda m: m.push(()),
    ord("]"): lambda m: m.push([]),
    ord("}"): lambda m: m.push({}),
    0x8F: lambda m: m.push(set()),
    ord("t"): lambda m: m.push(tuple(m.pop_to_mark())),
    0x85: lambda m: m.pop_tuple(1),
    0x86: lambda m: m.pop_tuple(2),
    0x87: lambda m: m.pop_tuple(3),
    ord("l"): lambda m: m.push(m.pop_to_mark()),
    ord("a"): lambda m: m.append([m.stack.pop()]),
    ord("e"): lambda m: m.append(m.pop_to_mark()),
    ord("s"): lambda m: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
    ord("u"): lambda m: m.set_items(m.pop_to_mark()),
    0x90: lambda m: m.add(m.pop_to_mark()),
    0x91: lambda m: m.push(frozenset(map(require_key, m.pop_to_mark()))),
    ord("q"): lambda m: m.put(m.number("<B")),
    ord("r"): lambda m: m.put(m.number("<I")),
    0x94: lambda m: m.put(len(m.memo)),
    ord("h"): lambda m: m.push(m.memo[m.number("<B")]),
    ord("j"): lambda m: m.push(m.memo[m.number("<I")]),
    ord("c"): lambda m: m.push(m.names.named(m.line(), m.line())),
    0x93: lambda m: m.pop_global(),
    ord("Q"): lambda m: m.push(m.names.persistent(m.stack.pop())),
    ord("R"): lambda m: m.reduce(),
    ord("b"): lambda m: m.build(),
    0x81: lambda m: m.new_object(),
}
"""What the machine does for each of pickle's opcodes that files may have, by the opcode's number."""
