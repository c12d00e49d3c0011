"""The kernel of the Profiler key: it notes when an operation began and ended, and has the next lower key's run it.

While a session is profiled the key is in the key set of all its calls, so that what executes them is looked up, and
kept, apart from what executes them otherwise. A pass over the backward graph notes its nodes likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import context, keys
from server.engine.autograd.graph import next_sequence
from server.engine.autograd.node import OpNode
from server.engine.dispatcher import BOXED, SPECIALIZERS, redispatch, specialized
from server.engine.operators import Operator, Run, Signature
from server.engine.signature import metas_of
from server.engine.value import Value
from telegrad_protocol.messages import Call
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing.recording import NODE

from .descriptions import Description, describe
from .recorder import now

Arguments = tuple[Any, ...]
_BELOW = keys.below(keys.PROFILER)


def note_call(operator: Operator, args: Arguments, signature: Signature, key_set: int) -> Any:
    """Run an operation and note it: the first call on new operands, and every call that has lists of tensors."""
    lower = key_set & _BELOW
    if context.current.profiler is None:
        return redispatch(operator, args, signature, lower)
    description, gpu = _described(operator, args, signature)
    return noting(description, lambda args: redispatch(operator, args, signature, lower), gpu)(args)


_DESCRIBED: dict[Any, tuple[Description, Device | None]] = {}
"""Descriptions of calls, and the GPUs that they launch on, by operation and signature."""
_MOST_DESCRIBED = 1 << 12


def _described(operator: Operator, args: Arguments, signature: Signature) -> tuple[Description, Device | None]:
    key = (operator.op.name, signature)
    known = _DESCRIBED.get(key)
    if known is None:
        if len(_DESCRIBED) >= _MOST_DESCRIBED:
            _DESCRIBED.clear()
        gpu = _gpu_of(args)
        known = _DESCRIBED[key] = describe(operator, metas_of(args), gpu), gpu
    return known


def _specialize(operator: Operator, key_set: int, signature: Signature) -> Run | None:
    """What notes a call like one that ``note_call`` has just run, and runs it as it is run otherwise."""
    inner, known = specialized(operator, key_set & _BELOW, signature), _DESCRIBED.get((operator.op.name, signature))
    return None if inner is None or known is None else noting(known[0], inner, known[1])


def _gpu_of(args: Arguments) -> Device | None:
    for arg in args:
        if arg.__class__ is Value and arg.meta.device.type != "cpu":
            return arg.meta.device
        if arg.__class__ is Device and arg.type != "cpu":
            return arg
        if arg.__class__ is tuple and arg and (gpu := _gpu_of(arg)) is not None:
            return gpu
    return None


def noting(description: Description, inner: Run, gpu: Device | None) -> Run:
    """``inner``, noted as what the description says; ``gpu`` is the one that it launches on, if any.

    ``Recorder.note`` is written out in what is returned, since this is most of what profiling costs.
    """
    return _noting_on_host(description, inner) if gpu is None else _noting_launches(description, inner, gpu)


def _noting_on_host(description: Description, inner: Run) -> Run:
    """``inner``, noted with no launches."""

    def run(args: Arguments) -> Any:
        recorder = context.current.profiler
        if recorder is None:
            return inner(args)
        instruction = recorder.source.instruction
        begin = now()
        try:
            return inner(args)
        finally:
            end = now()
            if instruction.__class__ is Call and instruction.outs:
                site, out = instruction.site, instruction.outs[0]
            else:
                site, out = _origin(instruction, description)
            pending = recorder.pending
            pending.extend((description, begin, end, site, out, 0, 0, next_sequence()))
            if len(pending) >= recorder.due:
                recorder.attend()

    return run


def _noting_launches(description: Description, inner: Run, gpu: Device) -> Run:
    """The same with the numbers of the launches that the operation has asked for."""
    number = gpu.index or 0
    between_events, on_host = _noting_between_events(description, inner, gpu), _noting_on_host(description, inner)

    def run(args: Arguments) -> Any:
        recorder = context.current.profiler
        log = None if recorder is None else recorder.logs.get(number)
        if recorder is None or log is None:
            return on_host(args) if recorder is None or gpu not in recorder.tracers else between_events(args)
        instruction, waiting = recorder.source.instruction, log.waiting
        first = log.made + len(waiting)
        begin = now()
        try:
            return inner(args)
        finally:
            end = now()
            if instruction.__class__ is Call and instruction.outs:
                site, out = instruction.site, instruction.outs[0]
            else:
                site, out = _origin(instruction, description)
            pending = recorder.pending
            count = log.made + len(waiting) - first
            pending.extend((description, begin, end, site, out, first, count, next_sequence()))
            if len(pending) >= recorder.due:
                recorder.attend()

    return run


def _noting_between_events(description: Description, inner: Run, gpu: Device) -> Run:
    """The same where the device's tracer numbers pairs of events, and no launches."""

    def run(args: Arguments) -> Any:
        recorder = context.current.profiler
        tracer, instruction = recorder.tracers[gpu], recorder.source.instruction
        first, begin = tracer.begin(), now()
        try:
            return inner(args)
        finally:
            end, count = now(), tracer.end(first)
            if instruction.__class__ is Call and instruction.outs:
                site, out = instruction.site, instruction.outs[0]
            else:
                site, out = _origin(instruction, description)
            recorder.pending.extend((description, begin, end, site, out, first, count, next_sequence()))
            if len(recorder.pending) >= recorder.due:
                recorder.attend()

    return run


def _origin(instruction: Any, description: Description) -> tuple[int, int]:
    """Return the line of an instruction, and what ``EventRow.out`` says of it."""
    site = getattr(instruction, "site", 0)
    if instruction.__class__ is not Call:
        return site, 0
    if instruction.outs:
        return site, instruction.outs[0]
    target = description.target
    written = instruction.args[target] if target is not None and target < len(instruction.args) else 0
    if written.__class__ is list and written:
        written = written[0]
    return site, -written if written.__class__ is int else 0


BOXED[keys.PROFILER] = note_call
SPECIALIZERS[note_call] = _specialize

_apply = OpNode.apply


def _noted_apply(node: OpNode, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    recorder = context.current.profiler
    if recorder is None:
        return _apply(node, grads)
    if recorder.emits:
        return recorder.node(node, grads, partial(_apply, node, grads))  # type: ignore[no-any-return]
    begin = now()
    try:
        return _apply(node, grads)
    finally:
        recorder.note(recorder.named(NODE, node.name), begin, sequence=node.sequence)


_recording: set[int] = set()


def begin(number: int) -> None:
    """Note the nodes that backward passes evaluate, for as long as a session of some number is profiled, or emits."""
    _recording.add(number)
    OpNode.apply = _noted_apply  # type: ignore[method-assign, assignment]


def end(number: int) -> None:
    """End ``begin`` for a session; evaluate nodes as ever once no session is profiled."""
    _recording.discard(number)
    if not _recording:
        OpNode.apply = _apply  # type: ignore[method-assign]
