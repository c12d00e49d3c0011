"""Runs of templates in a queue: the bytes that are found by arithmetic are those of the instructions."""

from __future__ import annotations

import numpy as np
import pytest

from telegrad._session.parts.template_runs import TemplateRun, TemplateTexts, encoded, expanded
from telegrad._session.thread_modes import DEFAULT
from telegrad_protocol import wire
from telegrad_protocol.messages import Call, Free
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.rows import Flat, Template

_FIRST = 1 << 20
"""The number before those of a run; those of inputs are smaller."""


def _template(rng: np.random.Generator, inputs: int) -> tuple[Template, int]:
    """A template, and how many inputs it has: additions, lists and frees of these and of tensors made before."""
    ids, calls = [*range(1, inputs + 1)], []
    for number in range(int(rng.integers(8, 30))):
        made = _FIRST + 1 + number
        first, second = (int(one) for one in rng.choice(ids, 2))
        calls.append(Call(TABLE["add"].index, int(rng.integers(1, 300)), (made,), [first, second, float(rng.normal())]))
        ids.append(made)
    several = [int(one) for one in rng.choice(ids, 3)]
    calls.append(Call(TABLE["cat"].index, 7, (_FIRST + len(calls) + 1,), [several, 0], [several[0]]))
    flat = Flat([*calls, Free([ids[-1]])], _FIRST)
    return Template(len(flat.inputs), flat.rows, flat.constants), len(flat.inputs)


def _numbers(rng: np.random.Generator, count: int, most: int) -> list[int]:
    return [int(one) for one in rng.integers(1, most, count)]


@pytest.mark.parametrize("most", [100, 250, 60_000, 1 << 31])
def test_bytes_are_those_of_the_instructions(rng: np.random.Generator, most: int) -> None:
    template, count = _template(rng, 20)
    texts, inputs, first = TemplateTexts(template), _numbers(rng, count, most), most
    for _ in range(200):
        for place in rng.integers(0, count, int(rng.integers(0, 4))):  # few inputs are others each time
            inputs[place] = int(rng.integers(1, most))
        first += int(rng.integers(1, most))  # ids come to need more bytes now and then
        ids = template.ids(first, inputs)
        run = TemplateRun(texts, first, inputs.copy(), ids)
        before, after = [Free([3])], [Free([first + 1]), Free([2, 1])]
        plain = [*before, *template.instructions(ids)[1:], *after]
        assert expanded([*before, run, *after]) == plain
        assert encoded([*before, run, *after]) == wire.encoder.encode(plain)


def test_runs_that_are_alike_are_not_encoded_again(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    template, count = _template(rng, 20)
    texts, inputs = TemplateTexts(template), _numbers(rng, count, 250)
    texts.of(1 << 20, inputs)
    made: list[int] = []
    instructions = Template.instructions
    monkeypatch.setattr(
        Template, "instructions", lambda self, ids, begin=0: made.append(1) or instructions(self, ids, begin)
    )
    for distance in range(1, 300):
        texts.of((1 << 20) + 40 * distance, inputs.copy())
    assert not made


def test_runs_under_modes_are_instructions_under_these(rng: np.random.Generator) -> None:
    template, count = _template(rng, 5)
    inputs, modes = _numbers(rng, count, 250), DEFAULT.but(grad=False)
    ids = template.ids(_FIRST, inputs)
    run = TemplateRun(TemplateTexts(template), _FIRST, inputs, ids)
    assert expanded([(modes, run)]) == [(modes, one) for one in template.instructions(ids)[1:]]
