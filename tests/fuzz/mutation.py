"""Makes malformed frames of well-formed ones: changes of bytes, changes of decoded values, and calls of any arguments.

Everything is drawn from the generator that is given, so that equal seeds give equal frames.
"""

from __future__ import annotations

import random
from typing import Any

from telegrad_protocol.ops import Op

Frame = tuple[int, bytes]

NUMBERS = [
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    7,
    65,
    255,
    2**16,
    2**31,
    2**40,
    2**52,
    2**62,
    2**63 - 1,
    2**64 - 1,
]
FLOATS = [0.0, -0.0, 0.5, 1.0, -1.5, 1e300, 5e-324, float("inf"), float("nan")]
WORDS = ["", "cpu", "cuda:0", "meta", "mean", "sum", "none", "tanh", "ij", "memory_stats", "stream", "\x00", "x" * 300]
IDS = [1, 2, 3, 4, 5, 60, 61, 62, 99]
_PLACES = 8
"""How deep a change goes into nested lists at most."""


def random_value(rng: random.Random, depth: int = 0) -> Any:
    """A value that MessagePack knows, often one at a limit."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return rng.choice((None, True, False))
    if kind == 4:
        return rng.choice(WORDS)
    if kind == 5:
        return rng.randbytes(rng.randrange(20))
    if kind == 6:
        return {rng.choice(WORDS): random_value(rng, depth + 1)}
    return [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]


def mutate_bytes(rng: random.Random, body: bytes, other: bytes) -> bytes:
    """``body`` with a few bytes changed, missing, repeated, or taken from ``other``."""
    data = bytearray(body or b"\x90")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(data) + 1)
        end = min(len(data), place + rng.choice((1, 1, 2, 4, 8, 64)))
        kind = rng.randrange(7)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(data):
            data[place] = rng.choice((0x00, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xCB, 0xCF, 0xD3, 0xDD, 0xDF, 0xFF))
        elif kind == 2:
            del data[place:end]
        elif kind == 3:
            data[place:place] = data[place:end]
        elif kind == 4:
            data[place:end] = rng.randbytes(end - place)
        elif kind == 5:
            start = rng.randrange(len(other) + 1)
            data[place:end] = other[start : start + rng.randrange(1, 40)]
        else:
            del data[place:]
    return bytes(data)


def mutate_values(rng: random.Random, batch: Any) -> Any:
    """A decoded batch in which a few values, at any depth, are others, missing, twice, or exchanged."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        items: Any = batch
        for _ in range(rng.randrange(1, _PLACES)):
            lists = [item for item in items if isinstance(item, list) and item]
            if not lists:
                break
            items = rng.choice(lists)
        if not items:
            return batch
        _change(rng, items)
    return batch


def _change(rng: random.Random, items: list[Any]) -> None:
    place = rng.randrange(len(items))
    kind = rng.randrange(8)
    if kind == 0:
        del items[place]
    elif kind == 1:
        items.insert(place, items[rng.randrange(len(items))])
    elif kind == 2:
        other = rng.randrange(len(items))
        items[place], items[other] = items[other], items[place]
    elif kind == 3 and isinstance(items[place], int):
        items[place] = min(max(items[place] + rng.choice((-1, 1, 2**31)), -(2**63)), 2**64 - 1)
    else:
        items[place] = random_value(rng)


def _fitting(rng: random.Random, kind: str) -> Any:
    """An argument of a kind as it travels, sometimes one that does not fit."""
    if kind.endswith("?") and rng.random() < 0.3:
        return None
    kind = kind.rstrip("?")
    if kind == "tensor" or (kind == "tensor|scalar" and rng.random() < 0.7):
        return rng.choice(IDS[:5])
    if kind == "tensors":
        return [rng.choice(IDS[:5]) for _ in range(rng.randrange(4))]
    if kind == "tensor|scalar":
        return [rng.choice(FLOATS)]
    if kind in ("int", "int|size"):
        return rng.choice(NUMBERS[3:9])
    if kind == "size":
        return [rng.choice(NUMBERS[3:10]) for _ in range(rng.randrange(4))]
    if kind in ("float", "scalar"):
        return rng.choice(FLOATS)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "dtype":
        return rng.randrange(14)
    if kind == "device":
        return rng.choice(("cpu", "cpu", "cpu", "meta", "cuda:0"))
    return rng.choice(WORDS) if kind == "str" else random_value(rng)


def random_call(rng: random.Random, op: Op) -> list[Any]:
    """A call of an operation as it travels, with arguments most of which are of the kinds that it wants."""
    args = [_fitting(rng, param.kind.name) if rng.random() < 0.93 else random_value(rng) for param in op.params]
    count = len(op.returns) or 1
    outs = [60 + number for number in range(count if rng.random() < 0.95 else rng.randrange(4))]
    return [0, op.index, rng.choice((0, 1)), outs, args, rng.choice(((), (), (), [61], [rng.choice(NUMBERS)]))]
