"""Streams that come of one stream, take turns, or are grouped: the same as PyTorch's data pipes."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
import functools, operator
from importlib import import_module
pipes = import_module(t.__name__ + ".utils.data.datapipes.iter")
def stream(n=12):
    return pipes.IterableWrapper(range(n))
parity = functools.partial(operator.mod, 7)
def modulo(n):
    return n % 3
def odd(n):
    return None if n % 4 == 3 else n % 2
late = functools.partial(operator.lt, 6)
grouped = functools.partial(pipes.Grouper, group_key_fn=int, buffer_size=4)
"""
PROGRAMS = {
    "forks": "a, b, c = stream().fork(3)\n([*a], [*b], [*c], len(a))",
    "forks in turn": "a, b = stream().fork(2)\n[*zip(a, b)]",
    "a second pass": "a, b = stream().fork(2)\n([*a], [*b], [*a], [*b])",
    "forks of forks": "a, b = stream(4).fork(2)\nc, d = a.map(str).fork(2)\n([*c], [*b], [*d])",
    "a buffer that is too small": "a, b = stream().fork(2, buffer_size=5)\n[*a]",
    "a buffer that suffices": "a, b = stream().fork(2, buffer_size=12)\n[*a]",
    "a buffer without a limit": "a, b = stream(2000).fork(2, buffer_size=-1)\nsum(a)",
    "no forks": "stream().fork(0)",
    "copies": "a, b = pipes.IterableWrapper([[1]]).fork(2, copy='deep')\nx, y = [*a], [*b]\n(x == y, x[0] is y[0])",
    "another copy": "stream().fork(2, copy='thorough')",
    "classes": "a, b, c = stream().demux(3, modulo)\n([*a], [*b], [*c])",
    "classes in turn": "a, b, c = stream().demux(3, modulo)\n[*zip(c, a, b)]",
    "a class that is none": "a, b = stream().demux(2, modulo)\n[*a]",
    "None": "a, b = stream().demux(2, odd)\n[*a]",
    "None is dropped": "a, b = stream().demux(2, odd, drop_none=True)\n([*a], [*b])",
    "classes and a small buffer": "a, b = stream().demux(2, lambda n: int(n > 7), buffer_size=3)\n[*b]",
    "no classes": "stream().demux(0, modulo)",
    "the length of classes": "len(stream().demux(3, modulo)[0])",
    "turns": "[*stream(3).mux(stream(9), pipes.IterableWrapper('abcd'))], len(stream(3).mux(stream(9)))",
    "groups": "[*stream().groupby(modulo)]",
    "groups of a size": "[*stream().groupby(modulo, group_size=3)]",
    "groups with keys": "[*stream().groupby(modulo, keep_key=True, group_size=2)]",
    "groups and a small buffer": "[*stream(20).groupby(modulo, buffer_size=4, group_size=3, guaranteed_group_size=2)]",
    "groups that are too short": "[*grouped(stream(9), group_size=3, guaranteed_group_size=2)]",
    "short groups are dropped": "[*grouped(stream(9), group_size=2, drop_remaining=True)]",
    "a size that does not fit": "stream().groupby(modulo, buffer_size=2, group_size=3)",
    "a guarantee without a size": "stream().groupby(modulo, guaranteed_group_size=3)",
    "a condition that is no bool": "[*stream().filter(modulo)]",
    "a chain": "a, b = stream().shuffle().set_shuffle(False).fork(2)\n[*a.batch(5).mux(b.filter(late).batch(2))]",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*not supported by pickle.*", "ignore:Unlimited buffer size:UserWarning")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_same_samples(tg: Any, program: str) -> None:
    ours, theirs = evaluate(f"{PROLOGUE}\n{program}", tg)
    assert_same(ours, theirs)


def test_a_pass_ends_the_one_before(tg: Any) -> None:
    program = f"""{PROLOGUE}
a, b = stream().fork(2)
first, other = iter(a), iter(b)
seen = [next(first), next(other)]
again = iter(a)
seen.append(next(again))
try:
    next(other)
except RuntimeError as error:
    seen.append("invalidated" in str(error))
seen"""
    ours, theirs = evaluate(program, tg)
    assert theirs == [0, 0, 0, True]
    assert_same(ours, theirs)
