"""Numbers that change are read where they stand in the bytes of a batch, and nowhere else."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from server.engine.operators import OPERATORS
from server.session.programs.numbered import differing, is_same
from telegrad_protocol import wire
from telegrad_protocol.messages import Call

_OP = OPERATORS["mul"].op.index


@pytest.fixture(autouse=True)
def _reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPERATORS["mul"], "reads_numbers", 1)


def _numbers(args: list[Any], others: list[Any]) -> Any:
    calls = [Call(_OP, 3, (9,), given, ()) for given in (args, others)]
    apart = [(n, a, b) for n, (a, b) in enumerate(zip(args, others, strict=True)) if not is_same(a, b)]
    return differing(*calls, apart, (), 1)


def _argument(rng: np.random.Generator, number: float) -> Any:
    near = struct.unpack(">d", struct.pack(">d", number)[1:] + b"\xcb")[0]
    some = [0, 63, -13, 203, 1 << 40, True, None, "\xcb", b"\xcb\x3f", [1, 2], float(rng.uniform(2, 3)), near]
    return some[rng.integers(len(some))]


@pytest.mark.parametrize("turn", range(4))
def test_a_number_is_found_where_it_stands(rng: np.random.Generator, turn: int) -> None:
    for _ in range(50):
        numbers = [float(n) for n in rng.uniform(1.01, 1.2, 3)]
        place, is_list = int(rng.integers(6)), bool(rng.integers(2))
        here = [_argument(rng, numbers[0]) for _ in range(6)]
        batches = [[([n] if is_list else n) if at == place else item for at, item in enumerate(here)] for n in numbers]
        (found,) = _numbers(batches[0], batches[1])
        assert (found.constant, found.is_list) == (place, is_list)
        body = bytearray(wire.encoder.encode(Call(_OP, 3, (9,), batches[0], ())))
        body[found.offset : found.offset + 8] = struct.pack(">d", numbers[2])
        assert bytes(body) == wire.encoder.encode(Call(_OP, 3, (9,), batches[2], ()))


def test_a_number_whose_bytes_begin_in_another_argument_is_not_looked_for() -> None:
    """Its own bytes overlap with those that only look like it, so that they are not found one after the other."""
    pairs = []
    for first in (b"\x3f", b"\xbf"):
        number = struct.unpack(">d", (first + b"\xcb") * 4)[0]
        before = struct.unpack(">d", b"\x3f\xf0\x00\x00\x00\x00\xcb" + first)[0]
        pairs.append([before, number])
    assert wire.encoder.encode(pairs[0]).count(b"\xcb" + struct.pack(">d", pairs[0][1])) == 1
    assert _numbers(*pairs) is None
