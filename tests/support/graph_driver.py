"""A driver whose graphs of kernels do nothing but note what they would start: for tests of chains without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tests.support.parameters import parameters_at

_ADDRESS = ctypes.c_void_p
_kept: list[object] = []
"""The functions of all drivers: graphs may be dropped after what tests hold of their driver."""


class _Node(ctypes.Structure):
    """What the driver is told of a kernel: its ``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("function", _ADDRESS), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("parameters", _ADDRESS), ("extra", _ADDRESS), ("kernel", _ADDRESS), ("context", _ADDRESS),
    ]  # fmt: skip


class GraphDriver:
    """Its functions by address. ``signatures`` has the formats of each function's parameters.

    What ``refuses`` names is refused: ``create add instantiate set launch``. ``started`` has all kernels that were
    started: the stream, the function, grid, block, shared memory, and the parameters. ``alive`` counts graphs.
    """

    def __init__(self, signatures: dict[int, Sequence[str]]) -> None:
        self.signatures = signatures
        self.refuses: set[str] = set()
        self.started: list[tuple[Any, ...]] = []
        self.launched: list[int] = []
        """How many kernels each graph had that was launched."""
        self.set_nodes = 0
        self.alive = 0
        self._things: dict[int, list[Any]] = {}
        self._count = 0
        taking = (
            (self._create, 2), (self._add, 5), (self._instantiate, 3), (self._set, 3), (self._launch, 2),
            (self._destroy, 1), (self._destroy, 1),
        )  # fmt: skip
        self._functions = [
            ctypes.CFUNCTYPE(ctypes.c_int, *[_ADDRESS] * arguments)(function) for function, arguments in taking
        ]
        _kept.append(self._functions)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the functions, in the order in which C takes them."""
        return tuple([ctypes.cast(function, _ADDRESS).value or 0 for function in self._functions])

    def _new(self, place: int, thing: list[Any]) -> None:
        self._count += 1
        self._things[self._count] = thing
        _ADDRESS.from_address(place).value = self._count

    def _create(self, place: int, flags: int | None) -> int:
        if "create" in self.refuses:
            return 1
        self.alive += 1
        self._new(place, [])
        return 0

    def _told(self, place: int) -> tuple[Any, ...]:
        node = _Node.from_address(place)
        parameters = parameters_at(node.parameters or 0, self.signatures[node.function])
        return node.function, tuple(node.grid), tuple(node.block), node.shared, tuple(parameters)

    def _add(self, place: int, graph: int, after: int | None, count: int | None, told: int) -> int:
        if "add" in self.refuses:
            return 1
        nodes = self._things[graph]
        before = [] if not count else [_ADDRESS.from_address(after or 0).value]
        if before != [node[0] for node in nodes[-1:]]:
            return 2
        self._new(place, [])
        nodes.append([self._count, self._told(told)])
        return 0

    def _instantiate(self, place: int, graph: int, flags: int | None) -> int:
        if "instantiate" in self.refuses:
            return 1
        self.alive += 1
        self._new(place, [list(node) for node in self._things[graph]])
        return 0

    def _set(self, executable: int, node: int, told: int) -> int:
        if "set" in self.refuses:
            return 1
        self.set_nodes += 1
        next(one for one in self._things[executable] if one[0] == node)[1] = self._told(told)
        return 0

    def _launch(self, executable: int, stream: int | None) -> int:
        if "launch" in self.refuses:
            return 1
        nodes = self._things[executable]
        self.launched.append(len(nodes))
        self.started += [(stream or 0, *told) for _, told in nodes]
        return 0

    def _destroy(self, thing: int) -> int:
        self.alive -= 1
        del self._things[thing]
        return 0

    def launch_alone(self, function: int, *given: int) -> None:
        """Start a kernel by itself, as ``cupy.cuda.driver.launchKernel`` does."""
        *geometry, shared, stream, parameters, _ = given
        values = tuple(parameters_at(parameters, self.signatures[function]))
        self.started.append((stream, function, tuple(geometry[:3]), tuple(geometry[3:]), shared, values))
