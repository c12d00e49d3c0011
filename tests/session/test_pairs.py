"""Two batches have in common what the rows of both have: pairs of instructions tell no more and no less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.session.programs.batches.pairs import NONE_MADE, DifferentError, numbers_there, pair_of
from server.session.programs.numbered import is_same
from telegrad_protocol.messages import Backward, Call, Free
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.rows import Flat

_OPS = ("add", "where", "cat", "sum", "index", "topk", "clamp", "linear", "_foreach_apply_")
_ATTRIBUTES: tuple[Any, ...] = (0.0, -0.0, float("nan"), 1, True, None, "float32", [1, 2], (3,), 0.5, b"x")


def _instruction(rng: np.random.Generator, made: int, known: list[int]) -> Any:
    def any_of(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    if rng.random() < 0.15:
        ids = [any_of(known) for _ in range(int(rng.integers(1, 4)))]
        return Free(ids) if rng.random() < 0.5 else Backward(3, (ids[0],), (None,), [(ids[-1], made)], False, False)
    op = TABLE[any_of(_OPS)]
    args: list[Any] = []
    for position, param in enumerate(op.params):
        if position not in op.tensor_positions:
            args.append(any_of(_ATTRIBUTES))
        elif param.kind.name.startswith("tensors"):
            args.append(any_of(([any_of(known), any_of(known)], [any_of(known), None], [])))
        else:
            args.append(any_of((any_of(known), any_of(known), None, 2.5, [0.5])))
    return Call(op.index, int(rng.integers(3)), (made,), args, ())


def _moved(one: Any, rng: np.random.Generator, first: int, distance: int) -> Any:
    """The same instruction with numbers above ``first`` moved, and sometimes with something else in it."""

    def moved(id: Any) -> Any:
        return id + distance if id.__class__ is int and id > first and rng.random() < 0.98 else id

    if isinstance(one, Free):
        return Free([moved(id) for id in one.ids])
    if isinstance(one, Backward):
        (leaf, gradient), root = one.leaves[0], moved(one.roots[0])
        return Backward(3, (root,), (None,), [(moved(leaf), moved(gradient))], False, False)
    positions = {op.index: op for op in TABLE.values()}[one.op].tensor_positions
    args = [
        ([moved(id) for id in arg] if arg.__class__ is list else moved(arg)) if position in positions else arg
        for position, arg in enumerate(one.args)
    ]
    if rng.random() < 0.1:
        args[int(rng.integers(len(args)))] = _ATTRIBUTES[int(rng.integers(len(_ATTRIBUTES)))]
    return Call(one.op, one.site, tuple(map(moved, one.outs)), args, ())


def _of_rows(here: list[Any], there: list[Any], first: int, distance: int) -> dict[int, int] | None:
    flat, other = Flat(here, first), Flat(there, first + distance)
    if flat.rows != other.rows or len(flat.constants) != len(other.constants):
        return None
    return dict(zip(flat.inputs, other.inputs, strict=True))


def _of_pairs(here: list[Any], there: list[Any], first: int, distance: int) -> dict[int, int] | None:
    try:
        pairs = [pair_of(*two) for two in zip(here, there, strict=True)]
        return {a: b for a, b in numbers_there(pairs, first, distance).items() if a <= first}
    except (DifferentError, TypeError):
        return None


@pytest.mark.parametrize("turn", range(4))
def test_pairs_are_of_instructions_with_the_same_rows(rng: np.random.Generator, turn: int) -> None:
    first, distance, found = 70_000, 500, 0
    for _ in range(300):
        count = int(rng.integers(1, 6))
        known = [65_536, 65_537, 69_999, first - 1]
        here = []
        for n in range(count):
            here.append(_instruction(rng, first + 1 + n, known))
            known.append(first + 1 + n)
        there = [_moved(one, rng, first, distance) for one in here]
        try:
            expected = _of_rows(here, there, first, distance)
        except TypeError:  # what is no list of tensors
            expected = None
        numbers = _of_pairs(here, there, first, distance)
        assert numbers == expected, (here, there)
        found += expected is not None
    assert found > 100


def test_constants_that_are_apart_are_those_that_differ_to_the_bit(rng: np.random.Generator) -> None:
    op = TABLE["sum"].index
    for a in _ATTRIBUTES:
        for b in _ATTRIBUTES:
            pair = pair_of(Call(op, 1, (9,), [4, a, b, 7], ()), Call(op, 1, (9,), [5, b, b, 7], ()))
            flats = [Flat([one], NONE_MADE).constants for one in (pair.here, pair.there)]
            assert pair.constants == len(flats[0])
            differ = [n for n, (x, y) in enumerate(zip(*flats, strict=True)) if not is_same(x, y)]
            assert [n for n, _, _ in pair.apart] == differ
