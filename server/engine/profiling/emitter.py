"""What emits ranges around what a session executes: operations, nodes of backward passes, and other instructions.

The Ranges key is in the key set of all calls of a session that emits. Its kernel has the next lower key's run an
operation in a range, and has what waits to be launched be launched there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from server.engine import context, keys
from server.engine.autograd.graph import Node
from server.engine.context import Context
from server.engine.device.interface import Counter, NoCounter
from server.engine.dispatcher import BOXED, redispatch
from server.engine.operators import Operator, Signature
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing.spans import name_of_operation

from .descriptions import shapes_of
from .nvtx import Library
from .open_ranges import OpenRanges, take_turn

Result = TypeVar("Result")
_BELOW: Final = keys.below(keys.RANGES)
_NO_LAUNCHES: Final = NoCounter()


class Emitter:
    """Emits the ranges of one session, in whose turn it is made.

    It stands where a session that is profiled has its recorder, and keeps nothing: operations are executed one by one
    under it. ``with_shapes``: names tell shapes of operands.
    """

    emits: Final = True
    wraps = notes_stretches = with_memory = False
    drawn = 0

    def __init__(self, ctx: Context, library: Library, with_shapes: bool) -> None:
        self.with_shapes = with_shapes
        self.tracers: dict[Device, Any] = {}
        self._context = ctx
        self._sequences: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
        """The numbers of nodes in the names of ranges: those of the operations that have made them."""
        self._next = 0
        self._flush()
        self.ranges = OpenRanges(library)
        self.open_range, self.close_range = self.ranges.open, self.ranges.close

    def end(self) -> None:
        """End all ranges that are open, and emit nothing any more."""
        self.ranges.end()

    def counter(self, device: Device) -> Counter:
        """Return what counts launches: nothing does."""
        return _NO_LAUNCHES

    def around(self, name: str, work: Callable[[], Result]) -> Result:
        """Do some work, and launch what it asks for, in a range; the range ends however the work does."""
        depth = len(self.ranges)
        self.ranges.push(name)
        try:
            result = work()
            self._flush()
            return result
        finally:
            self.ranges.pop_to(depth)

    def operation(self, operator: Operator, args: tuple[Any, ...], makes_node: bool, work: Callable[[], Any]) -> Any:
        """Execute an operation in a range with its name; ``makes_node``: gradients are recorded for it."""
        sequence = self._next if makes_node else None
        shapes = shapes_of(metas_of(args)) if self.with_shapes else None
        result = self.around(_named(name_of_operation(operator.op.name), sequence, shapes), work)
        if makes_node:
            self._number(result if result.__class__ is tuple else (result,))
        return result

    def node(self, node: Node, grads: Sequence[Value | None], work: Callable[[], Result]) -> Result:
        """Evaluate a node of the backward graph in a range with its name, and the number of what has made it."""
        metas = tuple([None if grad is None else grad.meta for grad in grads])
        shapes = shapes_of(metas) if self.with_shapes else None
        return self.around(_named(node.name, self._sequences.get(node), shapes), work)

    def _number(self, results: Sequence[Any]) -> None:
        """Give the nodes that an operation has made its number; an operation around it has the same."""
        histories = [result.autograd for result in results if result.__class__ is Value]
        nodes = [history.grad_fn for history in histories if history is not None and history.grad_fn is not None]
        new = [node for node in nodes if node not in self._sequences]
        for node in new:
            self._sequences[node] = self._next
        self._next += bool(new)

    def _flush(self) -> None:
        """Launch what waits for further launches."""
        for device, backend in self._context.backends.items():
            if device.type != "cpu":
                backend.flush()


def _named(name: str, sequence: int | None, shapes: list[Any] | None) -> str:
    numbered = name if sequence is None else f"{name}, seq = {sequence}"
    return numbered if not shapes else f"{numbered}, sizes = {shapes}"


def emits(ctx: Context) -> bool:
    """Return whether a session emits ranges."""
    return ctx.profiler is not None and ctx.profiler.emits


def begin_turn(ctx: Context) -> None:
    """Have the ranges be open that the session has open whose turn it is, and no others."""
    take_turn(ctx.profiler.ranges if emits(ctx) else None)


def emit_call(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    """Run an operation of a session that emits ranges in a range of its own: the kernel of the Ranges key."""
    ctx, lower = context.current, key_set & _BELOW
    if not emits(ctx):
        return redispatch(operator, args, signature, lower)
    makes_node = bool(lower & keys.AUTOGRAD) and not operator.op.updates
    return ctx.profiler.operation(operator, args, makes_node, lambda: redispatch(operator, args, signature, lower))


BOXED[keys.RANGES] = emit_call
