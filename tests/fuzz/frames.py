"""Malformed frames of well-formed ones, and frames of instructions with any values.

Everything is drawn from the generator that is given, so that equal seeds give equal frames.
"""

from __future__ import annotations

import random

import msgspec

from telegrad_protocol import wire
from telegrad_protocol.ops import BY_INDEX

from .instructions import random_instruction
from .mutation import Frame, mutate_bytes, mutate_values, random_call


def random_frame(rng: random.Random, frame: Frame, other: Frame) -> Frame:
    """A frame that ``frame`` and ``other``, of a program, have become, or one of instructions of any kind."""
    kind, body = frame
    choice, count = rng.random(), rng.choice((1, 1, 2, 5))
    if choice < 0.25:
        return _batch([random_call(rng, rng.choice(BY_INDEX)) for _ in range(count)])
    if choice < 0.45:
        return _batch([random_instruction(rng) for _ in range(count)])
    if choice < 0.75 and kind == wire.BATCH:
        return _batch(mutate_values(rng, msgspec.msgpack.decode(body)))
    if choice > 0.98:
        kind = rng.randrange(256)
    return kind, mutate_bytes(rng, body, other[1])


def _batch(instructions: list[object]) -> Frame:
    return wire.BATCH, msgspec.msgpack.encode(instructions)
