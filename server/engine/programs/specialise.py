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
from server.engine.prepared import overwriting_run
from server.engine.value import Backend, Value
from telegrad_protocol.meta import Meta

from .analysis import Analysis, Known, is_opaque
from .eliminate import folded, without_dead, without_repeated
from .executable import Description, Executable, Part, Places
from .execution import Call
from .expansion import expanded
from .fused import FUSERS, JOINERS, Executor, Kernel, Pending
from .graph import Graph, Slot, Step, replaced, slots_in, text_of
from .grouping import Group, Grouping
from .joined import Joined
from .joins import passes
from .joins.sums import has_sums_apart, with_sums_apart
from .joins.uses import Uses
from .joins.weights import has_weights_apart, with_layers_whole, with_weights_apart
from .lowering import Lowered
from .memory.plan import PART_MOVED, recomputed
from .memory.reuse import reused, written_over
from .temporaries import peak_bytes


class Options(NamedTuple):
    """Which passes are made.

    ``fold`` is for graphs whose constants do not change from then on, such as the weights of a served model.
    """

    dead: bool = True
    common: bool = True
    fold: bool = False
    fuse: bool = True
    recompute_from: int = 64 << 20
    """Bytes of temporaries from which on what is cheap is computed again rather than held."""
    part_moved: int = PART_MOVED
    """Of so many bytes that are read and written anyway, one more may be for that."""


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
    """Optimise a graph for inputs of these metas, and bind each step to what executes it; see ``optimised``."""
    return optimised(graph, metas, memory, options).executable()


def optimised(
    graph: Graph, metas: Sequence[Meta | type], memory: Sequence[int] | None = None, options: Options = ALL
) -> Specialisation:
    """Optimise a graph for inputs of these metas.

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
    steps = with_layers_whole(steps)
    numbers = [0] * len(metas) if memory is None else memory
    state = _State(steps, known, dict(zip(graph.inputs, numbers, strict=True)), outputs, graph.constants, {})
    counts: dict[str, int] = {}
    for name, shorten in (("dead", _drop_dead), ("common", _drop_repeated), ("fold", _fold), ("dead", _drop_dead)):
        before = len(state.steps)
        if getattr(options, name):
            state = shorten(state)
        counts[name] = counts.get(name, 0) + before - len(state.steps)
    if options.fuse:
        state = _take_weights_apart(_take_sums_apart(state))
    state, groups = _holding_less(state, _grouped(state, options.fuse), options)
    return Specialisation(graph, steps, state, counts, groups)


def _grouped(state: _State, fuse: bool, again: frozenset[Slot] = frozenset()) -> list[Group]:
    """Which steps are executed as one, in order; ``again`` as in ``Grouping``."""
    analysis = state.analysis()
    grouping = Grouping(state.steps, analysis, _keys(), fuse, again)
    if fuse:
        grouping = passes.joined(grouping, Uses(state.steps, analysis, state.outputs), state.outputs)
    return grouping.ordered()


def _holding_less(state: _State, groups: list[Group], options: Options) -> tuple[_State, list[Group]]:
    """What is cheap is computed again where it is needed late, if that makes a difference in what is held at once."""
    before = _held(state, groups)
    if not options.fuse or before < options.recompute_from:
        return state, groups
    found = recomputed(state.steps, groups, state.analysis(), state.outputs, _keys(), options.part_moved)
    if found is None:
        return state, groups
    changed = state._replace(steps=found[0])
    others = _grouped(changed, options.fuse, found[1])
    return (changed, others) if _held(changed, others) < before else (state, groups)


def _held(state: _State, groups: Sequence[Group]) -> int:
    analysis = state.analysis()
    over = reused(groups, state.steps, analysis, state.outputs, _keys())
    return peak_bytes([group.positions for group in groups], state.steps, analysis, state.outputs, over)


def _drop_dead(state: _State) -> _State:
    return state._replace(steps=without_dead(state.steps, state.analysis(), state.outputs))


def _drop_repeated(state: _State) -> _State:
    steps, names = without_repeated(state.steps, state.analysis(), state.outputs)
    return state._replace(steps=steps, outputs=[names.get(slot, slot) for slot in state.outputs])


def _fold(state: _State) -> _State:
    steps, constants = folded(state.steps, state.analysis(), state.outputs, state.constants)
    return state._replace(steps=steps, constants=constants)


def _take_sums_apart(state: _State) -> _State:
    keys = _keys()
    if not has_sums_apart(state.steps, keys):
        return state
    return state._replace(steps=with_sums_apart(state.steps, state.analysis(), keys))


def _take_weights_apart(state: _State) -> _State:
    keys = _keys()
    if not has_weights_apart(state.steps, keys):
        return state
    return state._replace(steps=with_weights_apart(state.steps, state.analysis(), keys))


def _keys() -> dict[object, int]:
    """The keys of the session's devices."""
    return {device: backend.key for device, backend in context.current.backends.items()}


class _Fused(NamedTuple):
    """A group of steps as one kernel, the backend that executes it, and the results that it writes over operands."""

    lowered: Lowered
    backend: Backend
    over: Mapping[Slot, Slot]


class Specialisation:
    """An optimised graph, of which executables are made. Those with fused kernels may have to wait for a compiler."""

    def __init__(
        self, graph: Graph, original: Sequence[Step], state: _State, counts: Mapping[str, int],
        groups: Sequence[Group],
    ) -> None:  # fmt: skip
        self._graph, self._original, self._state, self._counts = graph, original, state, counts
        self._analysis = analysis = state.analysis()
        self._outputs = [analysis.roots[slot] for slot in state.outputs]
        self._backends: dict[Any, Backend] = dict(context.current.backends)
        self._uses = Uses(state.steps, analysis, state.outputs)
        self._groups = groups
        self._over = reused(groups, state.steps, analysis, state.outputs, _keys())
        self._fused = self._lowered()
        self._pending = self._awaited()

    def _lowered(self) -> dict[int, _Fused]:
        """The kernels of groups of more than one step, by the group's number."""
        fused = {}
        for number, group in enumerate(self._groups):
            if len(group.positions) > 1:
                kernel = passes.described(group, self._state.steps, self._analysis, self._uses)
                backend = self._backends[kernel.kernel.device]
                if not group.kind or (backend.key, group.kind) in JOINERS:
                    over = {root: self._over[root] for root in kernel.results if root in self._over}
                    fused[number] = _Fused(written_over(kernel, over) if over else kernel, backend, over)
        return fused

    def _awaited(self) -> list[tuple[Backend, Pending]]:
        """What is compiled for the kernels of each device where that takes long."""
        pending = []
        for backend in dict.fromkeys([fused.backend for fused in self._fused.values()]):
            awaits = FUSERS[backend.key].awaits
            if awaits is not None:
                kernels = [fused.lowered.kernel for fused in self._fused.values() if fused.backend is backend]
                pending.append((backend, awaits(backend, kernels)))
        return pending

    def is_compiled(self) -> bool:
        """Whether fused kernels are there, those apart that cannot be compiled; never waits."""
        return all([pending.is_over() for _, pending in self._pending])

    def executable(self, fuse: bool = True) -> Executable:
        """Bind each step, or each fused kernel, to what executes it. What is not compiled yet is compiled now."""
        fused = {number: one for number, one in self._fused.items() if fuse and not self._has_failed(one)}
        groups: list[list[int]] = []
        kernels: dict[int, _Fused] = {}
        for number, group in enumerate(self._groups):
            if number in fused:
                kernels[len(groups)] = fused[number]
                groups.append(group.positions)
            else:
                groups += [[position] for position in group.positions]
        alone = [self._state.steps[group.positions[0]].outs for group in self._groups if len(group.positions) == 1]
        over = {outs[0]: self._over[outs[0]] for outs in alone if outs and outs[0] in self._over}
        binder = _Binder(self._graph, self._state, self._analysis, self._outputs, over)
        return self._described(binder, binder.bind(groups, kernels), groups)

    def _has_failed(self, fused: _Fused) -> bool:
        return any([p.has_failed(fused.lowered.kernel) for backend, p in self._pending if backend is fused.backend])

    def _described(self, binder: _Binder, calls: list[Call], groups: list[list[int]]) -> Executable:
        graph, state, original, counts = self._graph, self._state, self._original, self._counts
        before = _State(original, state.known, state.memory, state.outputs, graph.constants, state.inferred)
        description = Description(
            len(original), sum([step.operator.op.view_of is None for step in original]), binder.kernels,
            counts["dead"], counts["common"], counts["fold"], tuple(binder.fused),
            peak_bytes([[p] for p in range(len(original))], original, before.analysis(), before.outputs),
            peak_bytes(groups, state.steps, binder.analysis, state.outputs, binder.over), "\n\n".join(binder.texts),
        )  # fmt: skip
        outputs = [binder.places.of(root) for root in self._outputs]
        held = Held(context.current.host_memory, binder.code_bytes)
        known = [state.known[slot] for slot in graph.inputs]
        devices = frozenset([meta.device for meta in binder.analysis.known.values() if isinstance(meta, Meta)])
        return Executable(calls, binder.places.initial, known, outputs, description, held, devices, binder.parts)


class _Binder:
    """Makes calls of groups of steps."""

    def __init__(
        self, graph: Graph, state: _State, analysis: Analysis, outputs: Sequence[Slot], alone: Mapping[Slot, Slot]
    ) -> None:  # fmt: skip
        self.steps, self.analysis, self.outputs = state.steps, analysis, outputs
        self._alone = alone
        """Results that steps of their own may write over operands."""
        self.over: dict[Slot, Slot] = {}
        """Results that are written over operands; both have one place."""
        self.places = Places(graph.inputs)
        for slot, value in state.constants.items():
            self.places.put(slot, value)
        self.fused: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.parts: list[Part] = []
        self.kernels = self.code_bytes = 0

    def bind(self, groups: Sequence[Sequence[int]], kernels: Mapping[int, _Fused]) -> list[Call]:
        """The calls of groups, in order; ``kernels`` are those that are one kernel."""
        uses = [self._roots_of(group) for group in groups]
        calls = []
        for number, (group, ended) in enumerate(zip(groups, self._ends(uses))):
            call = self._fused(group, kernels[number]) if number in kernels else self._single(group[0])
            taken = {self.over[slot] for p in group for slot in self.steps[p].outs if slot in self.over}
            freed = tuple([self.places.of(root) for root in ended if root in self.places and root not in taken])
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
            run = self._overwriting(step, bound) or Plan(operator, bound).run
        self.kernels += operator.op.view_of is None
        self.parts.append(Part((operator,), bound))
        self.texts.append(text_of(step))
        outs = () if operator.op.mutates else tuple([self.places.of(slot) for slot in step.outs])
        is_one = len(outs) == 1 and not _gives_a_tuple(operator.op, bound)
        return Call(run, self.places.take(args), outs[0] if is_one else -1, () if is_one else outs, ())

    def _overwriting(self, step: Step, bound: tuple[Any, ...]) -> Run | None:
        """What writes a step's result over an operand, where it may and there is a kernel that can."""
        operand = self._alone.get(step.outs[0]) if step.outs else None
        if operand is None:
            return None
        place = next(
            p for p, arg in enumerate(step.args) if arg.__class__ is Slot and self.analysis.roots[arg] == operand
        )
        run = overwriting_run(step.operator, context.current.backends[bound[place].device], bound, place)
        if run is not None:
            self._write_over(step.outs[0], operand)
        return run

    def _write_over(self, result: Slot, operand: Slot) -> None:
        self.over[result] = operand
        self.places.share(result, operand)

    def _fused(self, group: Sequence[int], fused: _Fused) -> Call:
        (kernel, operands, results), backend, over = fused
        for result, operand in over.items():
            self._write_over(result, operand)
        executor = _executor(kernel, backend)
        self.kernels += 1
        self.code_bytes += executor.code_bytes
        self.fused.append(tuple([self.steps[p].operator.op.name for p in group]))
        self.parts.append(Part(tuple([self.steps[p].operator for p in group]), None))
        self.texts.append("\n".join([*[text_of(self.steps[p]) for p in group], executor.text]))
        places = tuple([self.places.of(root) for root in results])
        return Call(executor.run, self.places.take(operands), -1, places, ())


def _executor(kernel: Kernel | Joined, backend: Backend) -> Executor:
    if isinstance(kernel, Joined):
        return JOINERS[backend.key, kernel.kind].makes(backend, kernel)
    return FUSERS[backend.key].makes(backend, kernel)


def _gives_a_tuple(op: Any, bound: tuple[Any, ...] | None) -> bool:
    return bound is not None and isinstance(op.infer(bound), tuple)
