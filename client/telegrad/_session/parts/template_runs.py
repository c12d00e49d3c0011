"""What a layer queues without its Python: one entry of the queue, which stands for many instructions.

A part of a queue is mostly sent as a run of a program. What it is compared with is bytes, and the instructions of such
an entry are made only where they are sent one by one, or looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from telegrad_protocol import wire
from telegrad_protocol.programs.rows import Template

from .id_widths import width_of

_MOST_CHANGED: Final = 16
"""Where more inputs than these are others than in the run before, instructions are made and encoded."""


class TemplateRun:
    """The instructions of one run of a template, from its second one on, with the ids of its tensors by slot."""

    __slots__ = ("_first", "_ids", "_inputs", "_texts")

    def __init__(self, texts: TemplateTexts, first: int, inputs: Sequence[int], ids: list[int]) -> None:
        self._texts, self._first, self._inputs, self._ids = texts, first, inputs, ids

    def __len__(self) -> int:
        return len(self._texts.template) - 1

    def instructions(self) -> list[Any]:
        """Return the instructions, which are made anew."""
        return self._texts.template.instructions(self._ids, 1)

    def text(self) -> bytes:
        """Return what the instructions are encoded as, one behind the other."""
        return self._texts.of(self._first, self._inputs)


class TemplateTexts:
    """Finds the bytes of runs of a template by arithmetic, from those of an earlier run.

    Read as one large integer the bytes of two runs differ by a multiple of an integer that has a one where an id ends,
    as long as no id takes more bytes than before (``expected``).
    """

    def __init__(self, template: Template) -> None:
        self.template = template
        self._first = self._left = -1
        self._inputs: list[int] = []
        self._number = self._mask = self._nbytes = 0
        self._masks: dict[int, int] = {}
        """By the position of an input, what the bytes grow by with its id."""
        self._made = 0
        """How often instructions were made and encoded."""

    def of(self, first: int, inputs: Sequence[int]) -> bytes:
        """Return the bytes of a run's instructions, from the second one on."""
        distance = first - self._first
        if not 0 <= distance <= self._left or not self._take(inputs):
            return self._encoded_anew(first, list(inputs))
        self._number += distance * self._mask
        self._first, self._left = first, self._left - distance
        return self._number.to_bytes(self._nbytes, "big")

    def _take(self, inputs: Sequence[int]) -> bool:
        """Take over the inputs that are others than before; returns False where their bytes cannot be told."""
        if inputs == self._inputs:
            return True
        changed = [position for position, (id, last) in enumerate(zip(inputs, self._inputs)) if id != last]
        if len(changed) > _MOST_CHANGED:
            return False
        before = self._inputs
        if any([width_of(inputs[position]) != width_of(before[position]) for position in changed]):
            return False
        masks = [self._mask_of(position) for position in changed]
        if None in masks:
            return False
        self._number += sum([(inputs[p] - before[p]) * (mask or 0) for p, mask in zip(changed, masks)])
        self._inputs = list(inputs)
        return True

    def _mask_of(self, position: int) -> int | None:
        mask: int | None = self._masks.get(position)
        if mask is None:
            other = self._inputs.copy()
            other[position] += 1
            text = self._encoded(self._first, other)
            if len(text) == self._nbytes:
                mask = self._masks[position] = int.from_bytes(text, "big") - self._number
        return mask

    def _encoded_anew(self, first: int, inputs: list[int]) -> bytes:
        """Encode the instructions. After one, two, four such runs, note what tells the bytes of the next ones."""
        text = self._encoded(first, inputs)
        self._made += 1
        if not self._made & (self._made - 1):
            self._note(first, inputs, text)
        return text

    def _note(self, first: int, inputs: list[int], text: bytes) -> None:
        following = self._encoded(first + 1, inputs)
        made = self.template.ids(first, ())
        if len(following) != len(text) or not made:
            return
        self._number, self._nbytes = int.from_bytes(text, "big"), len(text)
        self._mask = int.from_bytes(following, "big") - self._number
        self._left = min([width_of(id)[0] - 1 - id for id in made])
        self._first, self._inputs = first, inputs
        self._masks.clear()

    def _encoded(self, first: int, inputs: Sequence[int]) -> bytes:
        template = self.template
        return text_of(template.instructions(template.ids(first, inputs), 1))


def text_of(instructions: list[Any]) -> bytes:
    """Return what instructions are encoded as, without how many there are."""
    return wire.encoder.encode(instructions)[len(header(len(instructions))) :]


def header(count: int) -> bytes:
    """Return how an array of so many items begins in MessagePack."""
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def encoded(entries: Sequence[Any]) -> bytes:
    """Return what instructions are encoded as, some of which are runs of templates."""
    pieces: list[bytes] = []
    count, begin = 0, 0
    for place, entry in enumerate(entries):
        if entry.__class__ is TemplateRun:
            pieces += (text_of(list(entries[begin:place])), entry.text())
            count += place - begin + len(entry)
            begin = place + 1
    rest = list(entries[begin:])
    if not pieces:
        return wire.encoder.encode(rest)
    return b"".join([header(count + len(rest)), *pieces, text_of(rest)])


def expanded(queued: Sequence[Any]) -> list[Any]:
    """Return entries of a queue, with the instructions of runs of templates in the place of these."""
    made: list[Any] = []
    for entry in queued:
        if entry.__class__ is TemplateRun:
            made += entry.instructions()
        elif entry.__class__ is tuple and entry[1].__class__ is TemplateRun:
            made += [(entry[0], one) for one in entry[1].instructions()]
        else:
            made.append(entry)
    return made


def further(queued: Sequence[Any]) -> int:
    """Return how many instructions there are besides one for each entry of a queue."""
    return sum([len(entry) - 1 for entry in queued if entry.__class__ is TemplateRun]) + sum(
        [len(entry[1]) - 1 for entry in queued if entry.__class__ is tuple and entry[1].__class__ is TemplateRun]
    )
