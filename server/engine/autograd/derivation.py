"""Derivatives and composites as programs: the operations that formulas consist of, worked out without computing.

The formulas run on values that have a meta and no memory, under the Tracer key, which notes each operation and infers
its results by the contract's shape rule. A client whose program answers operations itself runs these programs, so that
it needs no formulas of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from server.engine import context, keys
from server.engine.dispatcher import BOXED
from server.engine.operators import Operator
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Meta

from .graph import UNRECORDED, Edge
from .graph_task import GraphTask
from .node import GradientPlan, OpNode


class Step(NamedTuple):
    """One operation: its index, its arguments as they travel, and the numbers of its results."""

    op: int
    args: list[Any]
    outs: list[int]


class _Memory:
    """Stands for the storage of a value that has none."""

    version = 0


class Trace:
    """Operations in the order in which they were called, on values that have numbers from 0 on."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._values: list[Value] = []
        self._numbers: dict[int, int] = {}

    def value(self, meta: Meta, requires_grad: bool = False) -> Value:
        """Return a new value of this meta, without memory."""
        value = object.__new__(Value)
        backend = context.current.backends.get(meta.device) or next(iter(context.current.backends.values()))
        value.storage, value.meta, value.backend = _Memory(), meta, backend  # type: ignore[assignment]
        value.base, value._array, value.keys = None, None, backend.key
        value.autograd = UNRECORDED if requires_grad and meta.dtype.is_differentiable else None
        self._numbers[id(value)] = len(self._values)
        self._values.append(value)
        return value

    def values(self, metas: Any, requires_grad: bool = False) -> Any:
        """Return new values in the place of metas, in tuples too."""
        if isinstance(metas, Meta):
            return self.value(metas, requires_grad)
        return tuple([self.values(item, requires_grad) for item in metas])

    def number(self, value: Value | None) -> int | None:
        """Return the number of a value; None for None."""
        return None if value is None else self._numbers[id(value)]

    def add(self, operator: Operator, args: tuple[Any, ...]) -> Any:
        """Note an operation and return its results."""
        op = operator.op
        inferred = op.infer(metas_of(args))
        if inferred is None and op.data_dependent:
            raise NotSupportedError(f"{op.public}: the shape of its result depends on elements, so it is not traced")
        raw = [self._encoded(param, argument) for param, argument in zip(op.params, args, strict=True)]
        if op.mutates:
            self.steps.append(Step(op.index, raw, []))
            if inferred is None:
                return None
            targets = tuple([args[position] for position in op.mutates])
            return targets if isinstance(inferred, tuple) else targets[0]
        operands = [item for arg in args for item in (arg if arg.__class__ is tuple else (arg,))]
        is_tracked = any([item.__class__ is Value and item.autograd is not None for item in operands])
        results = self.values(inferred, is_tracked and op.differentiable)
        made = results if isinstance(results, tuple) else (results,)
        self.steps.append(Step(op.index, raw, [self._numbers[id(value)] for value in made]))
        return results

    def _encoded(self, param: Any, argument: Any) -> Any:
        if argument is None:
            return None
        kind = param.kind
        if not kind.holds_tensors:
            return kind.encode(argument) if kind.encode else argument
        if argument.__class__ is Value:
            return self.number(argument)
        if argument.__class__ is tuple:
            return [self.number(item) for item in argument]
        return [argument.real, argument.imag] if isinstance(argument, complex) else [argument]


_running: list[Trace] = []


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Have ``trace`` note the operations that are called within the block, instead of executing them."""
    current = context.current
    outer_trace, included = current.trace, current.included
    current.trace = deque(maxlen=0)  # nothing is kept of calls while they are traced
    current.included = included | keys.TRACER
    _running.append(trace)
    try:
        yield
    except AttributeError as error:  # of a value that has no memory
        raise NotSupportedError(f"what it consists of depends on elements: {error}") from error
    finally:
        _running.pop()
        current.trace, current.included = outer_trace, included


def _note(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    return _running[-1].add(operator, args)


BOXED[keys.TRACER] = _note


class _Saved:
    """Gives a formula an operand or a result that it names."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def unpack(self, node: Any) -> Any:
        return self._value


class PassTrace(Trace):
    """The operations of a backward pass; ``constants`` are the values of the graph that they use, and their numbers."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.constants: list[tuple[int, Value]] = []
        self._most = most

    def number(self, value: Value | None) -> int | None:
        if value is not None and id(value) not in self._numbers:
            if len(self.constants) >= self._most:
                raise NotSupportedError(f"the pass uses more than {self._most} values of the graph")
            self._numbers[id(value)] = len(self._values)
            self.constants.append((len(self._values), value))
            self._values.append(value)
        return super().number(value)


def derive_pass(
    trace: PassTrace, roots: Sequence[Value], inputs: Sequence[Edge], create_graph: bool
) -> list[int | None]:
    """Note the operations of a pass from ``roots``, and return the numbers of the gradients at the edges ``inputs``.

    The gradients of the roots are the first values of the trace.
    """
    gradients = [trace.value(root.meta.like()) for root in roots]
    task = GraphTask(True, create_graph, inputs)
    with tracing(trace):
        task.execute(roots, gradients)
    return [trace.number(task.captured.get(edge)) for edge in inputs]


class Program(NamedTuple):
    """Steps, and the numbers of the values that they are run for; None where there is none.

    Operands have the first numbers in the order of the arguments, then come the operation's results, and then the
    gradients of those of them that have one. Of a derivative there is a result for each tensor argument, and for each
    element of a list of these.
    """

    steps: list[Step]
    results: list[int | None]


def derive(operator: Operator, trace: Trace, args: tuple[Any, ...], needed: int, reached: Sequence[bool]) -> Program:
    """Return the program of the gradients with respect to ``needed``, a bit for each argument's position.

    ``args`` are traced values; ``reached`` tells which of the results have a gradient.
    """
    metas = metas_of(args)
    inferred = operator.op.infer(metas)
    if inferred is None:
        raise NotSupportedError(f"{operator.op.public}: its derivative depends on elements, so it is not traced")
    out_metas = inferred if isinstance(inferred, tuple) else (inferred,)
    outs = [trace.value(meta) for meta in out_metas]
    grads = [trace.value(meta.like()) if is_reached else None for meta, is_reached in zip(out_metas, reached)]
    plan = GradientPlan(operator, needed, metas)
    saved: list[Any] = [_Saved(args[position]) for position in plan.saves]
    for place, number in plan.saves_outs:
        saved.insert(place, _Saved(outs[number]))
    node = OpNode(plan, [], tuple(out_metas), saved)
    with context.grad_mode(False), tracing(trace):
        results = iter(node.apply(grads))
    aligned = [
        next(results) if position in operator.grad_positions else None
        for position in operator.op.tensor_positions
        for _ in (args[position] if args[position].__class__ is tuple else (None,))
    ]
    return Program(trace.steps, [trace.number(value) for value in aligned])


def expand(operator: Operator, trace: Trace, args: tuple[Any, ...]) -> Program:
    """Return the operations that a composite consists of."""
    assert operator.composite is not None
    operator.op.infer(metas_of(args))  # refuses operands that do not fit, which the composite relies on
    positional = operator.op.positional
    keywords = dict(zip(operator.keyword_names, args[positional:], strict=True))
    with context.grad_mode(True), tracing(trace):
        result = operator.composite(*args[:positional], **keywords)
    made = result if isinstance(result, tuple) else (result,)
    return Program(trace.steps, [trace.number(value) for value in made])
