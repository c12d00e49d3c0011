"""How a graph comes to its plan, with a stand-in for cuDNN that proposes, refuses and builds as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine import context
from server.engine.context import Context, CudnnModes
from server.engine.cuda.runtime import cudnn_graph, cudnn_plans
from server.engine.cuda.runtime.provisional import ASKED_AT
from server.engine.cuda.texts import DescribedDevice
from server.engine.replay.captures import settling
from telegrad_protocol import dtypes

FIRST, SECOND, SLOW = "eng1_k2=3_k14=4", "eng7", "eng0"


class NotSupported(Exception):
    """What the library raises."""


class Device(DescribedDevice):
    """A device that captures, or not."""

    is_capturing = False
    settles = False


class Library:
    """cuDNN's Python, as far as plans need it; notes what it was asked, and which plans were executed."""

    cudnnGraphNotSupportedError = NotSupported
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    knob_type = SimpleNamespace(TILE_SIZE="TILE_SIZE", STAGES="STAGES")
    numerical_note = SimpleNamespace(TENSOR_CORE="TENSOR_CORE")

    def __init__(self) -> None:
        self.proposals = {"A": [FIRST, SECOND], "FALLBACK": [SLOW]}
        self.refused: set[str] = set()
        self.with_tensor_cores = {FIRST, SECOND}
        self.asked: list[str] = []
        self.executed: list[str] = []

    def pygraph(self, *args: Any, **keywords: Any) -> PlannedGraph:
        return PlannedGraph(self)


class PlannedGraph:
    """A graph of the library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._plans: list[str] = []
        self._avoided: set[str] = set()
        self._built = ""

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        self._library.asked += modes
        self._plans += [plan for mode in modes for plan in self._library.proposals[mode]]

    def create_execution_plan(self, engine: int, knobs: dict[str, int]) -> None:
        numbers = {"TILE_SIZE": 2, "STAGES": 14}
        self._plans.append(f"eng{engine}" + "".join(f"_k{numbers[knob]}={value}" for knob, value in knobs.items()))

    def deselect_workspace_greater_than(self, nbytes: int) -> None: ...

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self._avoided = self._library.with_tensor_cores if notes else set()

    def get_execution_plan_count(self) -> int:
        return len(self._plans)

    def get_plan_name_at_index(self, number: int) -> str:
        return self._plans[number]

    def build_plan_at_index(self, number: int) -> None:
        if self._plans[number] in self._library.refused | self._avoided:
            raise NotSupported(self._plans[number])
        self._built = self._plans[number]

    def get_workspace_size(self) -> int:
        return 0

    def _execute(self, operands: Any, scratch: int, handle: Any) -> None:
        self._library.executed.append(self._built)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    library = Library()
    monkeypatch.setattr(cudnn_graph, "cudnn", library)
    monkeypatch.setattr(cudnn_graph, "_KNOWN", cudnn_plans.KnownPlans())
    monkeypatch.setattr(cudnn_graph, "Graph", lambda backend, dtype: SimpleNamespace(graph=library.pygraph(), count=0))
    monkeypatch.setattr(cudnn_graph, "handle_of", lambda backend: SimpleNamespace(on=lambda stream: None))
    monkeypatch.setattr(context, "current", Context({}))
    yield library


def _device() -> Any:
    device: Any = Device()
    device.launches = SimpleNamespace(launch=lambda perform, *arguments: perform(*arguments))
    return device


def _built(device: Any, kind: object = None, avoid: tuple[str, ...] = ()) -> Any:
    run = cudnn_graph.build("a graph", device, dtypes.float32, lambda graph: None, avoid=avoid, kind=kind)
    assert run is not None
    return run


def test_plans_that_serve_where_no_other_does_are_not_asked_for_where_another_does(library: Library) -> None:
    library.refused = {FIRST}
    _built(_device())()
    assert (library.asked, library.executed) == (["A"], [SECOND])


def test_they_are_asked_for_where_no_other_can_be_built(library: Library) -> None:
    library.refused = {FIRST, SECOND}
    _built(_device())()
    assert (library.asked, library.executed) == (["A", "FALLBACK"], [SLOW])


def test_what_is_to_be_avoided_is_avoided_in_both_lists(library: Library) -> None:
    _built(_device(), avoid=("TENSOR_CORE",))()
    assert (library.asked, library.executed) == (["A", "FALLBACK"], [SLOW])
    library.with_tensor_cores.add(SLOW)
    assert cudnn_graph.build("a graph", _device(), dtypes.float32, lambda graph: None, avoid=("TENSOR_CORE",)) is None


def test_a_graph_begins_with_the_plan_of_one_of_its_kind(library: Library) -> None:
    device = _device()
    _built(device, "kind")
    _built(device, "another kind")
    library.asked.clear()
    _built(device, "kind")()
    assert (library.asked, library.executed) == ([], [FIRST])


def test_a_plan_that_does_not_take_the_sizes_is_asked_for(library: Library) -> None:
    device = _device()
    _built(device, "kind")
    library.refused = {FIRST}
    _built(device, "kind")()
    assert (library.asked, library.executed) == (["A", "A"], [SECOND])


def test_a_graph_that_comes_again_gets_a_plan_of_its_own(library: Library) -> None:
    device = _device()
    _built(device, "kind")
    run = _built(device, "kind")
    library.proposals["A"] = [SECOND]
    for _ in range(ASKED_AT + 2):
        run()
    assert library.executed == [FIRST] * (ASKED_AT - 1) + [SECOND] * 3
    assert library.asked == ["A", "A"]


def test_a_graph_gets_a_plan_of_its_own_before_it_is_captured_and_not_meanwhile(library: Library) -> None:
    device = _device()
    _built(device, "kind")
    run = _built(device, "kind")
    library.proposals["A"] = [SECOND]
    device.is_capturing = True
    for _ in range(ASKED_AT + 2):
        run()
    assert set(library.executed) == {FIRST}
    device.is_capturing = False
    with settling(device, True):
        run()
    assert library.executed[-1] == SECOND


@pytest.mark.parametrize("modes", [CudnnModes(deterministic=True), CudnnModes(benchmark=True)])
def test_sessions_that_want_a_plan_for_the_shape_get_it_at_once(library: Library, modes: CudnnModes) -> None:
    device = _device()
    _built(device, "kind")
    run = _built(device, "kind")
    context.current.cudnn = modes
    library.asked.clear()
    _built(device, "kind")
    assert library.asked == ["A"]
    library.proposals["A"] = [SECOND]
    if modes.deterministic:
        run()
        assert library.executed == [SECOND]


@pytest.mark.parametrize("name", ["", "sdpa", "eng", "eng3_k0=1", "eng3_k2", "eng3_k2=x"])
def test_names_that_say_something_else_are_no_plans(name: str) -> None:
    assert cudnn_plans.parsed(name) is None


def test_a_name_says_which_engine_and_which_knobs() -> None:
    assert cudnn_plans.parsed("eng41_k2=26_k28=1") == (41, (("TILE_SIZE", 26), ("TILE_CGA_N", 1)))


def test_a_plan_of_another_name_than_was_asked_for_is_not_taken(library: Library) -> None:
    library.knob_type = SimpleNamespace(TILE_SIZE="STAGES", STAGES="TILE_SIZE")  # type: ignore[misc]
    assert cudnn_plans.borrow(library, library.pygraph, FIRST) is None
    assert cudnn_plans.borrow(library, library.pygraph, SECOND) is not None
