"""How a graph comes to its plan, with a stand-in for cuDNN that proposes, refuses and builds as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine import context
from server.engine.context import Context
from server.engine.cuda.runtime import cudnn_graph
from server.engine.cuda.texts import DescribedDevice
from telegrad_protocol import dtypes

FIRST, SECOND, SLOW = "eng1_k2=3_k14=4", "eng7", "eng0"


class NotSupported(Exception):
    """The error that cuDNN's frontend raises for a graph that it has no plan for."""


class Device(DescribedDevice):
    """A device that captures, or not."""

    is_capturing = False
    settles = False


class Library:
    """cuDNN's Python, as far as plans need it; notes what it was asked, and which plans were executed."""

    cudnnGraphNotSupportedError = NotSupported
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
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
    """Stands for a graph of cuDNN's frontend, whose plans can be chosen by their names."""

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

    def deselect_workspace_greater_than(self, nbytes: int) -> None: ...

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self._avoided = self._library.with_tensor_cores if notes else set()

    def get_execution_plan_count(self) -> int:
        return len(self._plans)

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
    monkeypatch.setattr(cudnn_graph, "Graph", lambda backend, dtype: SimpleNamespace(graph=library.pygraph(), count=0))
    monkeypatch.setattr(cudnn_graph, "handle_of", lambda backend: SimpleNamespace(on=lambda stream: None))
    monkeypatch.setattr(context, "current", Context({}))
    yield library


def _device() -> Any:
    device: Any = Device()
    device.launches = SimpleNamespace(launch=lambda perform, *arguments: perform(*arguments))
    return device


def _built(device: Any, avoid: tuple[str, ...] = ()) -> Any:
    run = cudnn_graph.build("a graph", device, dtypes.float32, lambda graph: None, avoid=avoid)
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
