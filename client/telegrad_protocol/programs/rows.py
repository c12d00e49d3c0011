"""Programs: sequences of instructions without the numbers of their tensors, and the way there and back.

A row is an instruction with slots in the place of ids: -n is the n-th id after the run's ``first``, and others are
positions of inputs. Attributes of calls, and what else may differ from run to run, are no part of rows but constants,
in the order in which rows use them. So rows are the same whenever the program does the same. Nothing is lost: a program
that is run is exactly the sequence that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from telegrad_protocol import messages
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.ops import TABLE

MOST_ROWS: Final = 1 << 14
"""A program has at most so many instructions."""
MOST_SLOTS: Final = 1 << 16
"""A program makes at most so many tensors, and takes at most so many."""
NUMBER: Final = False
"""Stands in a row for a number in the place of a tensor, which is a constant."""

Rename: TypeAlias = Callable[[int], int]


class _Layout:
    """Where the tensors of an operation's arguments are: True for a list, False for one, None for what is none."""

    __slots__ = ("holds_list",)

    def __init__(self, index: int) -> None:
        op = _BY_INDEX.get(index)
        if op is None:
            raise ProtocolError(f"there is no operation number {index}")
        self.holds_list = [
            param.kind.name.startswith("tensors") if position in op.tensor_positions else None
            for position, param in enumerate(op.params)
        ]


_BY_INDEX: Final = {op.index: op for op in TABLE.values()}
_layouts: Final[dict[int, _Layout]] = {}


def _layout_of(index: int) -> _Layout:
    layout = _layouts.get(index)
    if layout is None:
        layout = _layouts[index] = _Layout(index)
    return layout


def holds_lists(index: int) -> list[bool | None]:
    """Where the tensors of an operation's arguments are: True for a list, False for one, None for what is none."""
    return _layout_of(index).holds_list


def _renamed(ids: Sequence[int | None], rename: Rename) -> list[Any]:
    return [None if id is None else rename(id) for id in ids]


def _backward(one: messages.Backward, rename: Rename) -> messages.Backward:
    return messages.Backward(
        one.site, tuple(_renamed(one.roots, rename)), tuple(_renamed(one.gradients, rename)),
        [(rename(leaf), rename(gradient)) for leaf, gradient in one.leaves],
        one.retain_graph, one.create_graph, one.restricted,
    )  # fmt: skip


def _gradient(one: messages.Gradient, rename: Rename) -> messages.Gradient:
    return messages.Gradient(
        one.site, tuple(_renamed(one.roots, rename)), tuple(_renamed(one.gradients, rename)),
        tuple(_renamed(one.inputs, rename)), tuple(_renamed(one.outs, rename)),
        one.retain_graph, one.create_graph, one.allow_unused,
    )  # fmt: skip


_RENAMED: Final[dict[type, Callable[[Any, Rename], Any]]] = {
    messages.Free: lambda one, rename: messages.Free(_renamed(one.ids, rename)),
    messages.DropGrads: lambda one, rename: messages.DropGrads(_renamed(one.ids, rename)),
    messages.Backward: _backward,
    messages.Gradient: _gradient,
    messages.Mode: lambda one, rename: one,
    messages.SetRequiresGrad: lambda one, rename: messages.SetRequiresGrad(rename(one.id), one.value),
    messages.TakePlace: lambda one, rename: messages.TakePlace(rename(one.id), rename(one.former)),
    messages.RetainGrad: lambda one, rename: messages.RetainGrad(rename(one.id)),
    messages.SetGrad: lambda one, rename: messages.SetGrad(
        rename(one.id), None if one.grad is None else rename(one.grad)
    ),
}
"""Instructions that have no constants: each with its ids renamed."""


def is_writable(instruction: Any) -> bool:
    """Return whether a program may have this instruction."""
    kind = instruction.__class__
    if kind is messages.Call:
        return len(instruction.args) == len(_layout_of(instruction.op).holds_list)
    return kind in _RENAMED or (kind is messages.Upload and instruction.data is not None)


class Flat:
    """A sequence of instructions as rows, and what is not in them.

    ``inputs`` are ids in the order of their first use, ``constants`` are values in the order of theirs. Ids above
    ``first`` were given out while the instructions were made.
    """

    __slots__ = ("_first", "_places", "constants", "inputs", "rows")

    def __init__(self, instructions: Sequence[Any], first: int) -> None:
        self._first = first
        self._places: dict[int, int] = {}
        self.inputs: list[int] = []
        self.constants: list[Any] = []
        self.rows = [self._row(one) for one in instructions]

    def _slot(self, id: int) -> int:
        if id > self._first:
            return self._first - id
        place = self._places.get(id)
        if place is None:
            place = self._places[id] = len(self.inputs)
            self.inputs.append(id)
        return place

    def _row(self, one: Any) -> Any:
        kind = one.__class__
        if kind is messages.Call:
            return self._call(one)
        if kind is messages.Upload:
            self.constants += (one.shape, one.data)
            return messages.Upload(self._slot(one.id), one.site, one.dtype, (), one.device)
        return _RENAMED[kind](one, self._slot)

    def _call(self, call: messages.Call) -> messages.Call:
        index, first, slot, constants = call.op, self._first, self._slot, self.constants
        layout = _layouts.get(index) or _layout_of(index)
        slots: list[Any] = []
        for holds_list, item in zip(layout.holds_list, call.args):
            if holds_list is None:
                constants.append(item)
            elif item.__class__ is int:
                slots.append(first - item if item > first else slot(item))
            elif item is None:
                slots.append(None)
            elif holds_list:
                slots.append(_renamed(item, slot))
            else:
                slots.append(NUMBER)
                constants.append(item)
        outs = tuple([first - id if id > first else slot(id) for id in call.outs])
        return messages.Call(index, call.site, outs, slots, _renamed(call.freed, slot) if call.freed else ())


class Template:
    """The rows and constants of a program, from which the instructions of its runs are made.

    Raises ProtocolError where rows are no instructions of a program. ``constants`` may be changed between runs by
    ``change``.
    """

    __slots__ = ("_arguments", "_constants", "_inputs", "_makers", "_new", "_places", "_rows_of")

    def __init__(self, inputs: int, rows: Sequence[Any], constants: Sequence[Any]) -> None:
        if len(rows) > MOST_ROWS or not 0 <= inputs <= MOST_SLOTS:
            raise ProtocolError(f"a program has at most {MOST_ROWS} instructions and {MOST_SLOTS} inputs")
        self._inputs = inputs
        self._new = 0
        self._constants = list(constants)
        self._places: list[tuple[list[Any], int]] = []
        """By constant, where it stands: a list of arguments, and the position in it."""
        self._arguments: dict[int, list[Any]] = {}
        """The constants of rows that have some, each in its place among a row's arguments."""
        self._makers = [self._maker(number, row) for number, row in enumerate(rows)]
        self._rows_of = {id(arguments): number for number, arguments in self._arguments.items()}
        if len(self._places) != len(constants):
            raise ProtocolError(f"a program with {len(self._places)} constants has {len(constants)} values")

    def __len__(self) -> int:
        return len(self._makers)

    def change(self, constants: Sequence[tuple[int, Any]]) -> None:
        """Give constants, by position, other values from now on."""
        for constant, value in constants:
            row, position = self.place(constant)
            self._arguments[row][position] = value

    @property
    def constants(self) -> list[Any]:
        """The constants as they are now."""
        return [arguments[position] for arguments, position in self._places]

    def place(self, constant: int) -> tuple[int, int]:
        """Return where a constant stands: the number of its row, and the position among the row's arguments.

        Raises ProtocolError where there is no such constant.
        """
        if not 0 <= constant < len(self._places):
            raise ProtocolError(f"a program has no constant number {constant}")
        arguments, position = self._places[constant]
        return self._rows_of[id(arguments)], position

    def argument(self, row: int, position: int) -> Any:
        """Return a constant as it is now, by the place where it stands."""
        return self._arguments[row][position]

    def ids(self, first: int, inputs: Sequence[int]) -> list[int]:
        """Return the ids of a run, by slot."""
        return [*inputs, *range(first + self._new, first, -1)]

    def instruction(self, ids: list[int], number: int) -> Any:
        """Return one instruction of a run with these ids."""
        return self._makers[number](ids)

    def instructions(self, ids: list[int], begin: int = 0) -> list[Any]:
        """Return the instructions of a run with these ids, from one on."""
        return [make(ids) for make in (self._makers[begin:] if begin else self._makers)]

    def _check(self, slot: int) -> int:
        """Return a slot that there may be; raises ProtocolError for others."""
        if not -MOST_SLOTS <= slot < self._inputs:
            raise ProtocolError(f"a program has no slot {slot}")
        self._new = max(self._new, -slot)
        return slot

    def _constant(self, arguments: list[Any], place: int) -> None:
        if len(self._places) == len(self._constants):
            raise ProtocolError("a program has fewer values than constants")
        arguments[place] = self._constants[len(self._places)]
        self._places.append((arguments, place))

    def _maker(self, number: int, row: Any) -> Callable[[list[int]], Any]:
        kind = row.__class__
        if kind is messages.Call:
            return self._call_maker(number, row)
        if kind is messages.Upload:
            return self._upload_maker(number, row)
        renamed = _RENAMED.get(kind)
        if renamed is None:
            raise ProtocolError(f"a program cannot have an instruction {kind.__name__}")
        renamed(row, self._check)
        return lambda ids: renamed(row, ids.__getitem__)

    def _upload_maker(self, number: int, row: messages.Upload) -> Callable[[list[int]], Any]:
        slot, arguments = self._check(row.id), [None, None]
        self._arguments[number] = arguments
        self._constant(arguments, 0)
        self._constant(arguments, 1)
        return lambda ids: messages.Upload(ids[slot], row.site, row.dtype, _shape_of(arguments[0]), row.device,
                                           _bytes_of(arguments[1]))  # fmt: skip

    def _call_maker(self, number: int, row: messages.Call) -> Callable[[list[int]], Any]:
        layout, slots = _layout_of(row.op), iter(row.args)
        arguments: list[Any] = [None] * len(layout.holds_list)
        self._arguments[number] = arguments
        single: list[tuple[int, int]] = []
        lists: list[tuple[int, list[Any]]] = []
        for position, holds_list in enumerate(layout.holds_list):
            slot = next(slots, None) if holds_list is not None else NUMBER
            if slot is NUMBER:
                self._constant(arguments, position)
            elif slot.__class__ is int:
                single.append((position, self._check(slot)))
            elif slot.__class__ is list:
                lists.append((position, _renamed([_integer(item) for item in slot], self._check)))
            elif slot is not None:
                raise ProtocolError(f"a program's row has {type(slot).__name__} in the place of a slot")
        op, site, outs, freed = row.op, row.site, [*map(self._check, row.outs)], [*map(self._check, row.freed)]

        def make(ids: list[int]) -> messages.Call:
            args = arguments.copy()
            for position, slot in single:
                args[position] = ids[slot]
            for position, several in lists:
                args[position] = [None if slot is None else ids[slot] for slot in several]
            return messages.Call(
                op, site, tuple([ids[slot] for slot in outs]), args, [ids[slot] for slot in freed] if freed else ()
            )

        return make


def _integer(item: Any) -> int | None:
    if item is not None and item.__class__ is not int:
        raise ProtocolError(f"a program's row has {type(item).__name__} in the place of a slot")
    return item


def _shape_of(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all([item.__class__ is int for item in value]):
        raise ProtocolError("an upload of a program has no shape")
    return tuple(value)


def _bytes_of(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ProtocolError("an upload of a program has no bytes")
    return value
