"""From a graph to what executes it for operands of given metas: passes over the steps, then functions bound once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from server.engine import context
from server.engine.context import Held
from server.engine.dispatcher import dispatch
from server.engine.operators import Run
from server.engine.plan import Plan
from server.engine.value import Backend, Value
from telegrad_protocol.meta import Meta

from .analysis import Analysis, Known, is_opaque
from .eliminate import folded, without_dead, without_repeated
from .executable import Description, Executable, Places
from .execution import Call
from .expansion import expanded
from .fused import FUSERS, Executor
from .graph import Graph, Slot, Step, replaced, slots_in, text_of
from .grouping import grouped
from .lowering import lowered
from .temporaries import peak_bytes


class Options(NamedTuple):
    """Which passes are made.

    ``fold`` is for graphs whose constants do not change from then on, such as the weights of a served model.
    """

    dead: bool = True
    common: bool = True
    fold: bool = False
    fuse: bool = True


ALL = Options()
"""What ``specialise`` does where it is not told otherwise."""


class _State(NamedTuple):
    """Steps between two passes, with what they start from and what is wanted of them."""

    steps: Sequence[Step]
    known: Mapping[Slot, Known]
    memory: Mapping[Slot, int]
    outputs: Sequence[Slot]
    constants: Mapping[Slot, Value]
    inferred: dict[Slot, Known]
    """What an earlier analysis has found out of the slots that steps fill."""

    def analysis(self) -> Analysis:
        known = {**self.known, **{slot: value.meta for slot, value in self.constants.items()}}
        analysis = Analysis(self.steps, known, self.memory, self.inferred)
        self.inferred.update(analysis.known)
        return analysis


def specialise(
    graph: Graph, metas: Sequence[Meta | type], memory: Sequence[int] | None = None, options: Options = ALL
) -> Executable:
    """Optimise a graph for inputs of these metas, and bind each step to what executes it.

    In place of a meta stands the class of a number that is given with each run. ``memory`` has equal numbers for inputs
    that may share memory (``analysis.shared_memory``); without it all may. Results are those of the single operations:
    fused steps compute alike, and half precision stays float32 between them.

    Raises what the steps' shape rules and limits raise. Needs the context of the session that will run it, whose modes
    (autocast, gradients, default dtype) are taken into account now and not looked at later. Nothing is kept here:
    callers keep executables by metas and memory.
    """
    known: dict[Slot, Known] = dict(zip(graph.inputs, metas, strict=True))
    steps, outputs = expanded(
        graph.steps, {**known, **{slot: value.meta for slot, value in graph.constants.items()}}, graph.outputs
    )
    numbers = [0] * len(metas) if memory is None else memory
    state = _State(steps, known, dict(zip(graph.inputs, numbers, strict=True)), outputs, graph.constants, {})
    counts: dict[str, int] = {}
    for name, shorten in (("dead", _drop_dead), ("common", _drop_repeated), ("fold", _fold), ("dead", _drop_dead)):
        before = len(state.steps)
        if getattr(options, name):
            state = shorten(state)
        counts[name] = counts.get(name, 0) + before - len(state.steps)
    return _bound(graph, steps, state, counts, options)


def _drop_dead(state: _State) -> _State:
    return state._replace(steps=without_dead(state.steps, state.analysis(), state.outputs))


def _drop_repeated(state: _State) -> _State:
    steps, names = without_repeated(state.steps, state.analysis(), state.outputs)
    return state._replace(steps=steps, outputs=[names.get(slot, slot) for slot in state.outputs])


def _fold(state: _State) -> _State:
    steps, constants = folded(state.steps, state.analysis(), state.outputs, state.constants)
    return state._replace(steps=steps, constants=constants)


class _Binder:
    """Makes calls of groups of steps."""

    def __init__(self, graph: Graph, state: _State) -> None:
        self.steps, self.analysis = state.steps, state.analysis()
        self.places = Places(graph.inputs)
        for slot, value in state.constants.items():
            self.places.put(slot, value)
        self.backends: dict[Any, Backend] = dict(context.current.backends)
        self.outputs = [self.analysis.roots[slot] for slot in state.outputs]
        self.fused: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.kernels = self.code_bytes = 0

    def bind(self, groups: Sequence[Sequence[int]]) -> list[Call]:
        """The calls of groups, in order."""
        uses = [self._roots_of(group) for group in groups]
        ends = self._ends(uses)
        readers: dict[Slot, int] = {}
        for group in groups:
            for root in {self.analysis.roots[slot] for p in group for slot in slots_in(self.steps[p].args)}:
                readers[root] = readers.get(root, 0) + 1
        calls = []
        for group, ended in zip(groups, ends):
            call = self._single(group[0]) if len(group) == 1 else self._fused(group, readers)
            freed = tuple([self.places.of(root) for root in ended if root in self.places])
            calls.append(call._replace(freed=freed))
        return calls

    def _roots_of(self, group: Sequence[int]) -> set[Slot]:
        steps = [self.steps[p] for p in group]
        return {self.analysis.roots[slot] for step in steps for slot in (*slots_in(step.args), *step.outs)}

    def _ends(self, uses: Sequence[set[Slot]]) -> list[list[Slot]]:
        """For each group the values that nothing needs afterwards; inputs are dropped, too."""
        needed = set(self.outputs)
        ends = []
        for roots in reversed(uses):
            ends.append([root for root in roots if root not in needed])
            needed |= roots
        return ends[::-1]

    def _single(self, position: int) -> Call:
        step, bound = self.steps[position], self.analysis.bound[position]
        roots = self.analysis.roots
        args = replaced(step.args, {slot: roots[slot] for slot in slots_in(step.args)})
        operator = step.operator
        run: Run = partial(dispatch, operator)
        if bound is not None and not is_opaque(operator):
            run = Plan(operator, bound).run
        self.kernels += operator.op.view_of is None
        self.texts.append(text_of(step))
        outs = () if operator.op.mutates else tuple([self.places.of(slot) for slot in step.outs])
        is_one = len(outs) == 1 and not _gives_a_tuple(operator.op, bound)
        return Call(run, self.places.take(args), outs[0] if is_one else -1, () if is_one else outs, ())

    def _fused(self, group: Sequence[int], readers: Mapping[Slot, int]) -> Call:
        inside = {self.analysis.roots[slot] for p in group for slot in slots_in(self.steps[p].args)}
        made = {self.analysis.roots[slot] for p in group for slot in self.steps[p].outs}
        outputs = made.intersection(self.outputs)
        needed = outputs.union([root for root in made if readers.get(root, 0) > (root in inside)])
        kernel, operands, results = lowered(group, self.steps, self.analysis, frozenset(needed))
        backend = self.backends[(kernel.loads or [meta for _, meta in kernel.news])[0].device]
        executor: Executor = FUSERS[backend.key].makes(backend, kernel)
        self.kernels += 1
        self.code_bytes += executor.code_bytes
        self.fused.append(tuple([self.steps[p].operator.op.name for p in group]))
        self.texts.append("\n".join([*[text_of(self.steps[p]) for p in group], executor.text]))
        places = tuple([self.places.of(root) for root in results])
        return Call(executor.run, self.places.take(operands), -1, places, ())


def _gives_a_tuple(op: Any, bound: tuple[Any, ...] | None) -> bool:
    return bound is not None and isinstance(op.infer(bound), tuple)


def _bound(
    graph: Graph, original: Sequence[Step], state: _State, counts: Mapping[str, int], options: Options
) -> Executable:  # fmt: skip
    binder = _Binder(graph, state)
    keys: dict[object, int] = {device: backend.key for device, backend in binder.backends.items()}
    groups = grouped(state.steps, binder.analysis, keys, options.fuse)
    calls = binder.bind(groups)
    known = [state.known[slot] for slot in graph.inputs]
    before = _State(original, state.known, state.memory, state.outputs, graph.constants, state.inferred)
    description = Description(
        len(original), sum([step.operator.op.view_of is None for step in original]), binder.kernels,
        counts["dead"], counts["common"], counts["fold"], tuple(binder.fused),
        peak_bytes([[p] for p in range(len(original))], original, before.analysis(), before.outputs),
        peak_bytes(groups, state.steps, binder.analysis, state.outputs), "\n\n".join(binder.texts),
    )  # fmt: skip
    outputs = [binder.places.of(root) for root in binder.outputs]
    held = Held(context.current.host_memory, binder.code_bytes)
    devices = frozenset([meta.device for meta in binder.analysis.known.values() if isinstance(meta, Meta)])
    return Executable(calls, binder.places.initial, known, outputs, description, held, devices)
