"""Whom work was done for, where clocks differ and graphs have other work than was counted: on recordings made here.

Each is of operations, each of which has asked for one launch, within an instruction; what CUPTI tells is made up.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from telegrad_protocol.tracing import recording
from telegrad_protocol.tracing.recording import Descriptor, DeviceWork, Recording, packed
from telegrad_protocol.tracing.timeline import Timeline

LAUNCH = 3000
"""So many nanoseconds a launch takes the host."""
LATER = 500_000
"""So long after they were asked for launches are made."""
NAMES = ("sin", "mm", "sigmoid", "softmax")
TEXTS = [*(f"kernel of {name}" for name in NAMES), "splitKreduce_kernel", "copy", "call", "second kernel of mm"]
REDUCE, COPY, CALL, SECOND = 4, 5, 6, 7
AROUND = "telegrad::stretch"


class _Device:
    """What CUPTI tells of a GPU whose clock is ahead of the worker's by ``ahead`` nanoseconds."""

    def __init__(self, ahead: int = 0) -> None:
        self._ahead, self._correlations, self._begin = ahead, 0, 10 * LATER
        self.kernels, self.calls, self.flushes, self.parts = array("q"), array("q"), array("q"), array("q")

    def call(self, begin: int, end: int, names: Sequence[int], graph: int = 0) -> None:
        """Note a call, and the kernels that it has launched."""
        self._correlations += 1
        ahead = self._ahead
        self.calls.extend((CALL, begin + ahead, end + ahead, self._correlations))
        for name in names:
            self._begin += 100
            self.kernels.extend((
                name, 0, self._begin, self._begin + 90, self._correlations, 7, graph, 0, packed(1, 1, 1),
                packed(1, 1, 1), 0, 0,
            ))  # fmt: skip

    def one_by_one(self, begin: int, launches: Sequence[Sequence[int]], first: int = 0) -> int:
        """Note launches that were made one after the other, each of some kernels by a call each; returns the end."""
        for number, names in enumerate(launches, first):
            for place, name in enumerate(names):
                at = begin + 1000 + place * 1000 // max(len(names), 1)
                self.call(at, at + 700, [name])
            self.flushes.extend((begin, begin + LAUNCH, number, 1))
            begin += LAUNCH
        return begin

    def graph(self, begin: int, count: int, names: Sequence[int], first: int = 0) -> int:
        """Note a graph, of which so many launches were counted; returns the end."""
        self.flushes.extend((begin, begin + 2 * LAUNCH, first, count))
        self.call(begin + 1000, begin + 2 * LAUNCH - 500, names, graph=9)
        return begin + 2 * LAUNCH

    def work(self, dropped: int = 0) -> DeviceWork:
        return DeviceWork(
            0, recording.CUPTI_TIMES, "", TEXTS, self.kernels.tobytes(), self.calls.tobytes(), self.flushes.tobytes(),
            {}, dropped, self.parts.tobytes(),
        )  # fmt: skip


def _owners(device: _Device, asked: Sequence[int], around: tuple[int, int] = (0, 20), dropped: int = 0) -> list[Any]:
    """Return the kernels and who has them, where these operations have each asked for a launch, in this order.

    ``around`` are the begin of the instruction that contains the operations, and the end, in operations.
    """
    descriptors = [Descriptor(recording.OPERATION, name) for name in NAMES]
    descriptors.append(Descriptor(recording.INSTRUCTION, AROUND))
    events = array("q")
    for number, name in enumerate(asked):
        events.extend((name, 100 * number + 10, 100 * number + 90, 0, 0, number, 1, 0))
    events.extend((len(NAMES), around[0] * 100, around[1] * 100, 0, 0, 0, 0, 0))
    recorded = Recording(1, 0, 20 * LATER, descriptors, [], events.tobytes(), [device.work(dropped)], [])
    timeline = Timeline(recording.decode(recording.encode(recorded)))
    return [(kernel.name, kernel.parent.name if kernel.parent else "-") for kernel in timeline.kernels]


def _own(names: Sequence[int]) -> list[Any]:
    return [(TEXTS[name], f"aten::{NAMES[name]}") for name in names]


@pytest.mark.parametrize("ahead", [0, 400, -400, 1500, -1500, 2600, -2600, 5000, -5000])
def test_a_launch_has_its_kernel_however_clocks_differ(ahead: int) -> None:
    """A difference as long as a launch had each operation get the kernel of the next."""
    asked = [0, 1, 2, 3] * 3
    device = _Device(ahead)
    end = device.one_by_one(LATER, [[name] for name in asked[:7]])
    end = device.one_by_one(end + 20_000, [[name] for name in asked[7:9]], 7)
    device.graph(end + 20_000, 3, asked[9:], 9)
    assert _owners(device, asked) == _own(asked)


@pytest.mark.parametrize("ahead", [0, 900, -900])
def test_a_launch_of_several_kernels_has_all_of_them_however_clocks_differ(ahead: int) -> None:
    device = _Device(ahead)
    device.one_by_one(LATER, [[0], [1, REDUCE], [2], [1, SECOND], [3]])
    assert _owners(device, [0, 1, 2, 1, 3]) == [
        *_own([0, 1]), (TEXTS[REDUCE], "aten::mm"), *_own([2, 1]), (TEXTS[SECOND], "aten::mm"), *_own([3]),
    ]  # fmt: skip


def test_a_graph_with_second_kernels_of_products_has_all_in_order() -> None:
    device = _Device()
    device.graph(LATER, 4, [0, 1, REDUCE, 2, 3])
    assert _owners(device, [0, 1, 2, 3]) == [*_own([0, 1]), (TEXTS[REDUCE], "aten::mm"), *_own([2, 3])]


@pytest.mark.parametrize("names", [[0, 1, SECOND, 2, 3], [0, 1, 2], [0, 1, 2, 3, COPY], [1, 2, 3]])
def test_a_graph_with_other_work_than_was_counted_is_of_no_operation(names: list[int]) -> None:
    """Had it been spread over the operations, some would have had the kernels of their neighbours."""
    device = _Device()
    device.graph(LATER, 4, names)
    assert _owners(device, [0, 1, 2, 3]) == [(TEXTS[name], AROUND) for name in names]
    assert _owners(device, [0, 1, 2, 3], around=(1, 3)) == [(TEXTS[name], "-") for name in names]


@pytest.mark.parametrize("first", [0, 2])
def test_a_graph_with_launches_of_several_kernels_has_all_of_them_where_they_were_counted(first: int) -> None:
    """Launches of libraries have as many kernels as they like, and some have none."""
    device = _Device()
    end = device.one_by_one(LATER, [[2], [3]][:first])
    device.parts.extend((first + 1, 3, first + 2, 0))
    device.graph(end + 20_000, 4, [0, 1, SECOND, REDUCE, 3], first)
    assert _owners(device, [*[2, 3][:first], 0, 1, 2, 3])[first:] == [
        *_own([0, 1]), (TEXTS[SECOND], "aten::mm"), (TEXTS[REDUCE], "aten::mm"), *_own([3]),
    ]  # fmt: skip


def test_a_graph_of_one_operation_alone_is_that_operations() -> None:
    device = _Device()
    device.graph(LATER, 1, [1, SECOND])
    assert _owners(device, [1]) == [(TEXTS[1], "aten::mm"), (TEXTS[SECOND], "aten::mm")]


def test_a_graph_of_which_nothing_was_noted_is_of_no_operation() -> None:
    """It was launched while the second operation was executed, which has asked for nothing else."""
    device = _Device()
    device.call(120, 180, [0, 1, 2], graph=9)
    assert _owners(device, [0, 1]) == [(TEXTS[name], AROUND) for name in (0, 1, 2)]


def test_what_is_launched_beside_a_graph_does_not_move_its_kernels() -> None:
    """Copies are launched right before it and right after it, and clocks differ by more than lies between."""
    device = _Device(1800)
    device.call(LATER - 1200, LATER - 700, [COPY])
    device.graph(LATER, 4, [0, 1, 2, 3])
    device.call(LATER + 2 * LAUNCH + 500, LATER + 2 * LAUNCH + 900, [COPY])
    owners = _owners(device, [0, 1, 2, 3])
    assert owners[1:-1] == _own([0, 1, 2, 3]) and owners[0][0] == owners[-1][0] == TEXTS[COPY]


@pytest.mark.parametrize("ahead", [0, 700, -700, 1600, -1600])
def test_where_records_are_missing_no_launch_has_that_of_another(ahead: int, seed: int) -> None:
    """Those that are there belong to their operations, or where they might be a neighbour's to none."""
    random = np.random.default_rng(seed)
    asked = [int(name) for name in random.integers(0, len(NAMES), 40)]
    missing = set(random.choice(40, 5, replace=False).tolist())
    device = _Device(ahead)
    device.one_by_one(LATER, [[] if number in missing else [name] for number, name in enumerate(asked)])
    owners = _owners(device, asked, (0, 40), dropped=len(missing))
    there = [name for number, name in enumerate(asked) if number not in missing]
    for name, (kernel, owner) in zip(there, owners, strict=True):
        assert kernel == TEXTS[name] and owner in (f"aten::{NAMES[name]}", AROUND, "-")
    known = [owner for _, owner in owners if owner.startswith("aten")]
    assert len(known) == (len(there) if abs(ahead) < 1000 else 0)
