"""What a part is expected to be encoded as, if it is a run of the program that an earlier part was a run of.

Two runs of a program differ in numbers: ids of tensors, most of which are as far from the run's ``first`` each time,
and few constants. Encoded they are of one length, as long as no id takes more bytes than before. Read as one large
integer, the bytes of a run are then those of the last one, plus the distance between the two times an integer that has
a one where such an id ends. So a part is compared as a whole, by three operations on integers, and no instruction is
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, unpack
from typing import Any, Final, NamedTuple

from telegrad_protocol import wire
from telegrad_protocol.programs.messages import RunProgram
from telegrad_protocol.programs.rows import Flat, Template

from .id_widths import width_of

_MOST_BYTES: Final = 1 << 18
"""Larger parts are looked at instruction by instruction: what they upload takes longer than that."""
_MOST_VARYING: Final = 64


class Varying(NamedTuple):
    """What varies without a rule: inputs and constants, by their positions, whose values are read from the bytes."""

    inputs: frozenset[int] = frozenset()
    constants: frozenset[int] = frozenset()

    def with_these(self, inputs: Iterable[tuple[int, Any]], constants: Iterable[tuple[int, Any]]) -> Varying:
        """Return it with further ones, given by position and value."""
        positions = [position for position, _ in inputs], [position for position, _ in constants]
        return Varying(self.inputs.union(positions[0]), self.constants.union(positions[1]))


class _Field:
    """A place in the bytes: ``end`` counts bytes from the end of all, and ``mask`` has a one where the value stands.

    ``most`` is what the value is below: a larger number would be of another width.
    """

    __slots__ = ("end", "mask", "most", "position", "value", "width")

    def __init__(self, position: int, mask: int, width: int, most: int, text: bytes) -> None:
        self.position, self.mask, self.width, self.most = position, mask, width, most
        self.end = ((mask & -mask).bit_length() - 1) // 8
        self.value = self.read(text)

    def read(self, text: bytes) -> int:
        """Return the value in these bytes."""
        end = len(text) - self.end
        return int.from_bytes(text[end - self.width : end], "big")


class Expected:
    """The last run of a program in bytes, and what the next one is to be."""

    __slots__ = ("_constants", "_inputs", "_left", "_mask", "_number", "first", "modes", "number")

    def __init__(
        self, number: int, first: int, modes: list[Any], text: bytes, mask: int, left: int, inputs: list[_Field],
        constants: list[tuple[_Field, Any]],
    ) -> None:  # fmt: skip
        self.number = number
        """That of the program."""
        self.first = first
        self.modes = modes
        self._number = int.from_bytes(text, "big")
        self._mask = mask
        self._left = left
        """How much further ids may move before one of them takes more bytes."""
        self._inputs = inputs
        self._constants = constants

    def run(self, text: bytes, first: int) -> RunProgram | None:
        """Return the instruction for a part that is encoded so; None where it is not what is expected."""
        distance = first - self.first
        if distance > self._left:
            return None
        number = int.from_bytes(text, "big")
        expected = self._number + distance * self._mask
        if number == expected:
            self._number, self.first, self._left = number, first, self._left - distance
            return RunProgram(self.number, first)
        return self._run_varied(text, number, number - expected, first)

    def _run_varied(self, text: bytes, number: int, difference: int, first: int) -> RunProgram | None:
        """Return the same for a part with other inputs or constants, if nothing else is different."""
        inputs = [(field, field.read(text)) for field in self._inputs]
        constants = [(field, like, field.read(text)) for field, like in self._constants]
        for field, value in [*inputs, *[(field, value) for field, _, value in constants]]:
            difference -= (value - field.value) * field.mask
        if difference or any([value > first or value >= field.most for field, value in inputs]):
            return None
        if len({value for _, value in inputs}) < len(inputs):  # there is a program of fewer inputs, or is to be one
            return None
        changed = [(field.position, value) for field, value in inputs if value != field.value]
        told = [
            (field.position, _constant_of(like, value, field.width))
            for field, like, value in constants
            if value != field.value
        ]
        for field, value in [*inputs, *[(field, value) for field, _, value in constants]]:
            field.value = value
        self._left -= first - self.first
        self._number, self.first = number, first
        return RunProgram(self.number, first, changed, [], told)

    def varying_inputs(self) -> Iterable[tuple[int, int]]:
        """Return positions of inputs that vary without a rule, and their ids in the last run."""
        return [(field.position, field.value) for field in self._inputs]


def expected_after(
    number: int, first: int, instructions: Sequence[Any], modes: list[Any], moving: Sequence[int], varying: Varying
) -> Expected | None:  # fmt: skip
    """Return what follows a run of the program ``number`` with these instructions, whose ``moving`` inputs move.

    None where runs cannot be compared so, or too many inputs vary.
    """
    if len(varying.inputs) > _MOST_VARYING:
        return None
    flat = Flat(instructions, first)
    template = Template(len(flat.inputs), flat.rows, flat.constants)
    text = _encoded(template, first, flat.inputs)
    if len(text) > _MOST_BYTES or text != wire.encoder.encode(list(instructions)):
        return None
    moved = [id + (position in moving) for position, id in enumerate(flat.inputs)]
    mask = _difference(_encoded(template, first + 1, moved), text)
    if mask is None or mask < 0:
        return None
    inputs = []
    for position in sorted(varying.inputs.difference(moving)):
        field = _field_of_input(template, position, text, first, flat.inputs)
        if field is None:
            return None
        inputs.append(field)
    constants = []
    for position in sorted(varying.constants):
        field = _field_of_constant(template, position, flat.constants[position], text, first, flat.inputs)
        if field is not None:  # what else varies is compared like all that does not
            constants.append((field, flat.constants[position]))
    ids = [flat.inputs[position] for position in moving] + [*range(first + 1, first + len(template.ids(first, ())) + 1)]
    left = min([width_of(id)[0] - 1 - id for id in ids], default=0)
    return Expected(number, first, modes, text, mask, left, inputs, constants)


def _encoded(template: Template, first: int, inputs: Sequence[int]) -> bytes:
    return wire.encoder.encode(template.instructions(template.ids(first, inputs)))


def _difference(text: bytes, other: bytes) -> int | None:
    """Return the difference of two texts as numbers; None where they are of different lengths."""
    return int.from_bytes(text, "big") - int.from_bytes(other, "big") if len(text) == len(other) else None


def _field_of_input(
    template: Template, position: int, text: bytes, first: int, inputs: Sequence[int]
) -> _Field | None:  # fmt: skip
    """Return where the id of an input stands, which is found by giving it the next one."""
    mask = _difference(
        _encoded(template, first, [id + (place == position) for place, id in enumerate(inputs)]), text
    )  # fmt: skip
    most, width = width_of(inputs[position])
    return _Field(position, mask, width, most, text) if mask and mask > 0 else None


def _field_of_constant(
    template: Template, position: int, like: Any, text: bytes, first: int, inputs: Sequence[int]
) -> _Field | None:
    """Return where a constant stands, which is found by giving it the value whose bits are the opposite ones."""
    bits = _bits_of(like)
    if not bits:
        return None
    ones = (1 << 8 * len(bits)) - 1
    template.change([(position, _constant_of(like, int.from_bytes(bits, "big") ^ ones, len(bits)))])
    other = _encoded(template, first, inputs)
    template.change([(position, like)])
    changed = int.from_bytes(text, "big") ^ int.from_bytes(other, "big")
    mask = changed & -changed
    if len(other) != len(text) or changed != ones * mask:
        return None
    return _Field(position, mask, len(bits), ones + 1, text)


def _bits_of(constant: Any) -> bytes | None:
    """Return the bytes of a constant that may vary: a float, alone or in a list, or bytes; None for others."""
    if isinstance(constant, bytes):
        return constant
    only = constant[0] if isinstance(constant, list) and len(constant) == 1 else constant
    return pack(">d", only) if only.__class__ is float else None


def _constant_of(like: Any, value: int, width: int) -> Any:
    """Return a constant of the kind of another one, whose bytes are those of an integer."""
    data = value.to_bytes(width, "big")
    if isinstance(like, bytes):
        return data
    number = unpack(">d", data)[0]
    return [number] if isinstance(like, list) else number
