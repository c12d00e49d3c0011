"""A program with its tensors on devices: its graphs for given sizes, and their execution."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.programs.executable import Executable
from server.engine.programs.graph import Graph, Slot, Step, run
from server.engine.programs.specialise import specialise
from server.engine.value import Backend, Value
from telegrad_protocol.exported.arguments import Binder
from telegrad_protocol.exported.checking import operation_of
from telegrad_protocol.exported.description import ProgramDescription
from telegrad_protocol.exported.solving import sizes_of
from telegrad_protocol.meta import Device

from .constants import folded

MAX_GRAPHS: Final = 64
"""Of so many combinations of sizes the graphs are kept; the one that was used longest ago goes first."""
RUNS_BEFORE: Final = 8
"""A graph is optimised when it is run for the so-manieth time and one: sizes that come once are not worth it."""


class _Sized:
    """The graph for some sizes: it runs step by step at first, and optimised once it has come several times."""

    __slots__ = ("_executable", "_graph", "_runs")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._executable: Executable | None = None
        self._runs = 0

    def run(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the outputs."""
        if self._executable is not None:
            return self._executable.run(values)
        self._runs += 1
        if self._runs <= RUNS_BEFORE:
            return run(self._graph, values)
        self._executable = specialise(self._graph, [value.meta for value in values], range(len(values)))
        return self._executable.run(values)


class LoadedProgram:
    """A program that can be run. What it writes to begins every run as it is in the file."""

    def __init__(
        self, description: ProgramDescription, values: Mapping[int, Value], backends: Mapping[Device, Backend],
        default_device: Device,
    ) -> None:  # fmt: skip
        self.description = description
        written = {held.value for held in description.tensors if held.is_written}
        constants = {Slot(number): value for number, value in values.items() if number not in written}
        self._written = {number: value for number, value in values.items() if number in written}
        self._graphs: OrderedDict[tuple[int, ...], _Sized] = OrderedDict()
        self._binder = Binder(
            Slot, _is_slot, lambda device: served_device(description, device, backends, default_device)
        )
        self._steps, self._constants = folded(description, constants, self._binder)
        self.devices = [
            served_device(description, Device(item.device), backends, default_device) for item in description.inputs
        ]
        """Where each input is expected."""

    @property
    def steps(self) -> int:
        """How many operations the program has."""
        return len(self.description.steps)

    def close(self) -> None:
        """Do nothing: its file is closed."""

    def run(self, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Return the outputs for these inputs, in the order of the description; ShapeError where they do not fit."""
        named = zip(self.description.inputs, inputs, strict=True)
        sizes = sizes_of(self.description, {described.name: value.shape for described, value in named})
        fresh = [dispatch(OPERATORS["clone"], (value,)) for value in self._written.values()]
        return self._graph(sizes).run([*inputs, *fresh])

    def _graph(self, sizes: dict[str, int]) -> _Sized:
        key = tuple(sizes.values())
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = _Sized(self._bound(sizes))
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return graph

    def _bound(self, sizes: dict[str, int]) -> Graph:
        """Return the graph whose arguments are those for these sizes."""
        steps = []
        for step in self._steps:
            op = operation_of(step)
            args = self._binder.bind(op, step.args, sizes)
            steps.append(Step(OPERATORS[op.name], args, tuple(map(Slot, step.outs))))
        inputs = [Slot(item.value) for item in self.description.inputs]
        outputs = [Slot(item.value) for item in self.description.outputs]
        return Graph(steps, [*inputs, *map(Slot, self._written)], outputs, self._constants)


def _is_slot(item: object) -> bool:
    return item.__class__ is Slot


def served_device(
    description: ProgramDescription, device: Device, backends: Mapping[Device, Backend], default_device: Device
) -> Device:  # fmt: skip
    """Return the device that stands for one of the program's: the default one for that of its inputs, and for others.

    A second device of the program is itself where the worker has it.
    """
    if device.name == description.base_device() or device.on_server not in backends:
        return default_device
    return device.on_server
