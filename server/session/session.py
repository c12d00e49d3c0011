"""One client's values, order and errors: takes frames of instructions, executes them, returns frames of replies.

Owns no socket. Fail-stop: after an instruction failed, nothing but frees, sites, modes and what the client has noted
on its tensors is executed until it has seen the failure and says ``Resume``; what would have been computed is marked as
absent, with the reason. What only a device can find wrong is found later: see ``hindsight``.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from server.engine import context
from server.engine.context import Context
from server.engine.device.interface import Event
from server.engine.random import Generator
from server.engine.value import Backend, Value
from server.ipc.requests import SERVER_IDS
from telegrad_protocol import dtypes, messages, wire
from telegrad_protocol.errors import NotComputedError, ProtocolError, TelegradError, UnknownIdError
from telegrad_protocol.meta import Device
from telegrad_protocol.ops import Op

from . import failures, gradients, queries, uploads
from . import streams as ordering
from .arguments import BY_INDEX, describe_operands
from .call_cache import CALLERS
from .early_reads import Ahead
from .failures import Absent
from .launch_scope import Accelerators
from .modes import set_mode
from .replies import Answers
from .rollback import Hindsight
from .transfers import Barrier, Chunk, Frame, Incoming, Outgoing, Transfers

if TYPE_CHECKING:
    from server.worker.host import Host

CHUNK_COST = 16
"""A megabyte that is read counts as this many instructions, so that replies go out before many have piled up."""


class Session:
    """A client's side of the engine."""

    def __init__(self, number: int, host: Host, backends: dict[Device, Backend], default_device: Device) -> None:
        self.number = number
        self.host = host
        self.context = Context(backends, number)
        self._accelerators = Accelerators(backends.values())
        self.context.generators = {device: Generator() for device in backends}
        for generator in self.context.generators.values():
            generator.seed()
        self.default_device = default_device
        self.default_dtype = dtypes.float32
        self.values: dict[int, Value | Absent] = {}
        self.events: dict[int, Event] = {}
        self._next_id = SERVER_IDS
        self.sites: dict[int, str] = {}
        self.inbox: deque[Any] = deque()
        self.instruction: Any = None  # what is being executed
        self.upload: Incoming | None = None
        self.transfers = Transfers()
        self.hindsight = Hindsight(self)
        self.answers = Answers(self.hindsight.look)
        self.context.ahead = Ahead(self)
        self.send: Callable[[], None] = _wait
        """Sends the replies that there are, where somebody can; else they wait to be taken."""
        self.expects_more = False
        """Whether there are further frames, which will be handed over once these instructions are executed."""
        self.failure = 0
        self.failures = 0
        self.failure_reason = ""
        self.last_failure: messages.Failure | None = None
        self.opened = time.time()
        self._handlers: dict[type, Callable[[Any], int | None]] = {
            messages.Free: self._free, messages.Site: self._site,
            messages.Upload: partial(uploads.upload, self), Chunk: partial(uploads.chunk, self),
            messages.Read: self._read, messages.Describe: partial(queries.describe, self),
            messages.Backward: self.hindsight.covering(partial(gradients.backward, self)),
            messages.Gradient: self.hindsight.covering(partial(gradients.grad, self)),
            messages.SetRequiresGrad: partial(gradients.set_requires_grad, self),
            messages.RetainGrad: partial(gradients.retain_grad, self),
            messages.SetGrad: partial(gradients.set_grad, self),
            messages.DropGrads: partial(gradients.drop_grads, self), messages.Mode: partial(set_mode, self),
            messages.Seed: self._seed, messages.Query: self._query, messages.Resume: self._resume,
            messages.RecordEvent: partial(ordering.record_event, self),
            messages.WaitEvent: partial(ordering.wait_event, self),
            messages.RecordStream: partial(ordering.record_stream, self),
        }  # fmt: skip
        self._handlers = self._accelerators.guarded(self._handlers)

    def receive(self, kind: int, body: memoryview) -> None:
        """Queue a frame. What cannot be decoded fails the session in its turn, like any instruction."""
        try:
            if kind == wire.BATCH:
                self.inbox.extend(wire.decode_instructions(body))
            elif kind == wire.CHUNK:
                self.inbox.append(Chunk(*wire.split_chunk(body)))
            else:
                raise ProtocolError(f"frame of unknown kind {kind}")
        except ProtocolError as error:
            self.inbox.append(error)

    @property
    def shows_memory(self) -> bool:
        """Whether frames that show memory of tensors are on their way; nothing is executed until they have left."""
        return self.answers.shows_memory

    @property
    def has_work(self) -> bool:
        """Whether instructions are waiting that can be executed."""
        return bool(self.inbox) and not self.shows_memory and not self.holds

    @property
    def holds(self) -> bool:
        """Whether the next instruction waits until a device has checked what those before it were given."""
        return self.hindsight.holds and self.hindsight.still_holds()

    def frames_left(self) -> None:
        """Told by who took frames: they have been sent, or copied; memory that they show may change again."""
        self.answers.shows_memory = False

    @property
    def waits(self) -> bool:
        """Whether answers wait for the device."""
        return self.answers.waits or bool(self.hindsight.outstanding)

    def run(self, budget: int) -> int:
        """Execute up to ``budget`` instructions, less where large ones are among them; returns how much it used."""
        self.activate()
        if self.waits:
            self.poll()
        inbox, handlers, hindsight, answers = self.inbox, self._handlers, self.hindsight, self.answers
        outstanding, done, refuse = hindsight.outstanding, hindsight.done, self._refuse
        values, callers = self.values, CALLERS
        used = 0
        self._accelerators.let_wait()
        while used < budget and inbox and not answers.shows_memory:
            if outstanding and hindsight.must_wait(inbox[0]):
                break
            self.instruction = instruction = inbox.popleft()
            kind = instruction.__class__
            used += 1
            if self.failure and kind not in _ALWAYS:
                self._pass_over(instruction)
                continue
            if outstanding:
                done.append(instruction)
            elif done:
                done.clear()
            try:
                if kind is not messages.Call:
                    used += handlers.get(kind, refuse)(instruction) or 0
                elif len(outs := instruction.outs) != 1 or (caller := callers.get(instruction.op)) is None:
                    self._call(instruction)
                else:
                    if instruction.freed:
                        self._free_before(instruction)
                    raw = instruction.args
                    result = caller.ways.get(tuple(map(type, raw)), caller.first)(self, raw)
                    self.host.operations += 1
                    if result.__class__ is Value:
                        values[outs[0]] = result
                    else:
                        self._bind(outs, result if isinstance(result, tuple) else ())
                    result = None  # it may be freed by the next
            except Exception as error:  # whatever it was, it is this session's failure and nobody else's
                if not hindsight.explains():
                    self.fail(instruction, error)
            if outstanding and not done:
                done.append(instruction)
        try:
            self._accelerators.end_waiting(flush=(used < budget and bool(inbox)) or not (inbox or self.expects_more))
        except Exception as error:
            self.fail(self.instruction or _FREE, error)
        return used

    def activate(self) -> None:
        """Make this session's modes the engine's."""
        self.instruction = None
        context.activate(self.context)
        self._accelerators.enter(self.context)
        dtypes.set_default_dtype(self.default_dtype)

    def poll(self) -> None:
        """See what the device has found wrong, and give the answers that it has got to, in order."""
        self.hindsight.look()
        self.answers.deliver()

    def take_replies(self) -> list[Frame]:
        """Frames to send, in order."""
        return self.answers.take()

    def control(self, verb: str, args: list[Any]) -> Any:
        """Answer a request from beside the stream, such as one over HTTP."""
        from server.worker import control as controls

        self.activate()
        self._accelerators.end_waiting(flush=True)
        self.hindsight.look()
        return controls.answer_session(self, verb, args)

    def close(self) -> None:
        """Drop everything that the client holds, and what is on its way."""
        self.inbox.clear()
        self.answers.clear()
        self.upload, self.send = None, _wait
        self.transfers.close()
        self.values.clear()
        self.events.clear()
        self._accelerators.leave(self.context)
        self.hindsight.close()
        self.context = Context({})
        context.activate(self.context)
        self.host.forget(self)

    def value(self, id: int) -> Value:
        """The value that the client calls ``id``."""
        found = self.values.get(id)
        if found.__class__ is Value:
            return found
        if isinstance(found, Absent):
            raise NotComputedError(f"this tensor was never computed: {found.reason}")
        raise UnknownIdError(f"the session has no tensor number {id}")

    def values_of(self, ids: Collection[int]) -> list[Value]:
        """The values that the client calls ``ids``."""
        found: list[Any] = list(map(self.values.get, ids))
        if {*map(type, found)} == _ALL_VALUES:
            return found
        return [self.value(id) for id in ids]

    def new_id(self) -> int:
        """A number for a result that the client did not name."""
        while self._next_id in self.values:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def optional(self, id: int | None) -> Value | None:
        """The value that the client calls ``id``; None where it calls nothing so."""
        return None if id is None else self.value(id)

    def _bind(self, outs: tuple[int, ...], results: tuple[Any, ...]) -> None:
        if len(outs) != len(results):
            raise ProtocolError(f"{len(outs)} ids for {len(results)} results")
        for id, result in zip(outs, results, strict=True):
            self.values[id] = result

    def _call(self, call: messages.Call) -> None:
        """A call of no result, or of several; ``run`` executes those of one itself."""
        if call.freed:
            self._free_before(call)
        caller = CALLERS.get(call.op)
        if caller is None:
            raise ProtocolError(f"there is no operation number {call.op}")
        outs, raw = call.outs, call.args
        if len(outs) > 1:
            _check_count(outs, caller.operator.op)
        result = caller.ways.get(tuple(map(type, raw)), caller.first)(self, raw)
        self.host.operations += 1
        if result.__class__ is not Value:
            if outs:
                self._bind(outs, result if isinstance(result, tuple) else ())
        elif outs or not caller.operator.op.mutates:
            self._bind(outs, (result,))

    def _free_before(self, call: messages.Call) -> None:
        self.instruction = _FREE
        self._forget(call.freed)
        self.instruction = call

    def _free(self, free: messages.Free) -> None:
        self._forget(free.ids)

    def _forget(self, ids: Collection[int]) -> None:
        forget = self.values.pop
        for id in ids:
            forget(id, None)
        if self.events:
            for id in ids:
                self.events.pop(id, None)
        if self.upload is not None and self.upload.id in ids:
            self.upload = None  # the client was interrupted in the middle of it

    def _site(self, site: messages.Site) -> None:
        self.sites[site.number] = f"{site.file}:{site.line} in {site.function}"

    def _read(self, read: messages.Read) -> int:
        value = self.value(read.id)
        nbytes = value.meta.nbytes
        self.answers.make_room(nbytes)
        self.answers.add_later(Outgoing(read.request, value))
        return nbytes * CHUNK_COST // messages.CHUNK_BYTES

    def answer_now(self, read: messages.Read) -> None:
        """Answer a read that waits, before its turn; one that fails does so in its turn."""
        try:
            self._read(read)
        except Exception:  # not what is being executed has failed: the read stays in the inbox
            return
        self.inbox.remove(read)
        if self.answers.has_replies:
            self.send()

    def _seed(self, seed: messages.Seed) -> None:
        only = self.host.backend(seed.device).device if seed.device else None
        for device, generator in self.context.generators.items():
            if only is None or device is only:
                generator.manual_seed(seed.value)

    def _query(self, query: messages.Query) -> None:
        later = ordering.later(self, query.what, query.args)
        if later is not None:
            self.answers.add_later(Barrier(query.request, *later))
        else:
            self.answers.add(messages.Answer(query.request, queries.answer(self, query.what, query.args)))

    def _resume(self, resume: messages.Resume) -> None:
        if resume.failure == self.failure:
            self.failure = 0

    def _refuse(self, thing: Any) -> None:
        raise thing if isinstance(thing, TelegradError) else ProtocolError(f"unexpected {type(thing).__name__}")

    def fail(self, instruction: Any, error: Exception) -> None:
        """Stop: tell the client, and compute nothing more until it says ``Resume``."""
        self.host.heed(error)
        self.failures += 1
        self.failure = self.failures
        op = BY_INDEX[instruction.op].op if _names_operation(instruction) else None
        failure = failures.describe(
            self.failure, error,
            request=getattr(instruction, "request", None),
            operation=op.public if op else type(instruction).__name__.lower(),
            operands=describe_operands(self, op, instruction.args) if op else "",
            site=self.sites.get(getattr(instruction, "site", 0), ""),
        )  # fmt: skip
        where = f" at {failure.site}" if failure.site else ""
        self.failure_reason = f"{failure.operation} failed{where}: {failure.message}"
        self._mark_absent(instruction)
        if self.upload is not None:
            self.values.setdefault(self.upload.id, Absent(self.failure_reason))
            self.upload = None
        self.last_failure = failure
        self.answers.add(failure)

    def _pass_over(self, instruction: Any) -> None:
        if instruction.__class__ in _NOTES:
            self._note(instruction)
        else:
            self.skip(instruction)

    def skip(self, instruction: Any) -> None:
        """What a failed session does with an instruction: results become absent, requests get the failure."""
        if instruction.__class__ is messages.Call and instruction.freed:
            self._free_before(instruction)
        self._mark_absent(instruction)
        request = getattr(instruction, "request", None)
        if request is not None and self.last_failure is not None:
            self.answers.add(failures.for_request(self.last_failure, request))

    def _note(self, instruction: Any) -> None:
        """The client's tensors have changed already, so the server's follow, as far as they were computed."""
        if isinstance(instruction, messages.SetGrad) and not isinstance(self.values.get(instruction.grad or 0), Value):
            instruction = messages.SetGrad(instruction.id, None)
        with contextlib.suppress(TelegradError):
            self._handlers[instruction.__class__](instruction)

    def _mark_absent(self, instruction: Any) -> None:
        for id in failures.results_of(instruction):
            self.values.setdefault(id, Absent(self.failure_reason))  # what is there stays what it was


def _names_operation(instruction: Any) -> bool:
    return isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX)


def _check_count(outs: tuple[int, ...], op: Op) -> None:
    if op.mutates and len(outs) != len(op.mutates):
        raise ProtocolError(f"{op.name}: {len(outs)} ids for {len(op.mutates)} results")


def _wait() -> None:
    """Leave replies where they are."""


_ALL_VALUES = {Value}
_FREE = messages.Free([])
"""Whose doing it is, in the history of memory, that a call's dead are freed."""
_NOTES: frozenset[type] = frozenset(
    (messages.SetGrad, messages.DropGrads, messages.SetRequiresGrad, messages.RetainGrad)
)
_ALWAYS: frozenset[type] = frozenset((messages.Free, messages.Site, messages.Mode, messages.Resume))
