"""Executes one client's instructions: takes frames of them, runs them in order, and gives back frames of replies.

It owns no socket and knows nothing of HTTP; what the session keeps is in ``state``. What a failure does to it is in
``failures``; what only a device can find wrong is found later, see ``rollback``.

``run`` is passed by every operation: calls that it could make are written out in it. What the worker's loop looks at
between two runs (``has_work``, ``blocked``, ``waits``, ``is_ahead``, ``shows_memory``) are plain attributes, which
``_update`` sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from server.engine import context
from server.engine.autograd.graph import next_sequence
from server.engine.context import Context
from server.engine.profiling.emitter import begin_turn
from server.engine.profiling.open_ranges import stacks
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes, messages, wire
from telegrad_protocol.errors import OutOfMemoryError, ProtocolError, TelegradError
from telegrad_protocol.meta import Device, Meta

from . import attachments, queries, streams, tensors
from . import memory as _memory  # its answers enter themselves in the table of requests
from .autograd import client_passes, gradients
from .autograd import node_queries as _node_queries  # likewise, and those of derivations
from .call_cache import CALLERS, FREE, bind, call, first_call, free_before
from .call_stack import add_site, describe_site
from .early_reads import EarlyReads
from .extensions.calls import call_extension
from .failures import ALWAYS_EXECUTED, FailStop, end_failure, end_interrupt, name_of
from .host_memory.account import NODE_BYTES, TENSOR_BYTES
from .host_memory.frames import salvaged
from .launch_scope import LaunchedAhead, LaunchScope
from .modes import set_mode
from .profiling.profiles import drop_profile, note_frame, numbers_drawn
from .programs import graphs, sequences, stretches
from .programs import reports as _reports  # likewise
from .programs.batches.recurring import RecurringBatches
from .programs.successions import take_place
from .replies import Frame
from .rollback import Rollback
from .state import SessionState, Suspended
from .tensors import forget
from .uploads import Chunk
from .user_code import kernels

Result = TypeVar("Result")
_INTERRUPTIBLE = frozenset((messages.Backward, messages.Gradient))

_ = (_memory, _node_queries, _reports)
_NO_FRAMES: list[Frame] = []


class Session:
    """The instructions of one client.

    ``check_devices`` is called with every error and raises where no session can go on; ``on_close`` is called once.
    """

    def __init__(
        self, number: int, backends: dict[Device, Backend], default_device: Device,
        check_devices: Callable[[Exception], None], on_close: Callable[[Session], None],
    ) -> None:  # fmt: skip
        self.state = state = SessionState(number, backends, default_device)
        self.has_work = False
        """Whether ``run`` has something to execute."""
        self.blocked = False
        """Whether nothing may be executed before a device has checked indices, or frames that show memory are sent."""
        self.waits = False
        """Whether replies or checks wait for a device, so that ``poll`` should be called."""
        self.shows_memory = False
        """Whether frames that show memory of tensors are on their way; ``frames_left`` says that they were sent."""
        self.is_ahead = False
        """Whether devices have enough to do: what is launched cannot be taken back, so ``run`` should wait."""
        self.expects_more = False
        """Whether the owner has further frames, which it hands over once these instructions are executed."""
        self.send: Callable[[], None] = _keep
        """Sends the replies that there are at once, where the owner can."""
        self._on_close = on_close
        self._first: messages.Call | None = None
        """The first call of the last run."""
        self._launches = LaunchScope(backends.values())
        self._launched = LaunchedAhead(self._launches.backends, state.context)
        state.handlers = self._handlers = self._launches.guarded(self._handlers_of(state))
        failing = FailStop(state, self._handlers, check_devices, free_before)
        self._fail, self._pass_over = failing.fail, failing.pass_over
        self._rollback = rollback = Rollback(state, failing.fail, failing.skip)
        state.replies.check = rollback.look
        state.verify = rollback.verify
        state.context.before_replay = EarlyReads(state, self._answer_early)
        self._host_memory = state.host_memory
        self._batches = RecurringBatches(state)

    def _handlers_of(self, state: SessionState) -> dict[type, Callable[[Any], int | None]]:
        handlers: dict[type, Callable[[SessionState, Any], int | None]] = {
            messages.Free: tensors.free, messages.Site: add_site, messages.Upload: tensors.upload,
            Chunk: tensors.upload_chunk, messages.Read: tensors.read, messages.Describe: tensors.describe,
            messages.Backward: gradients.backward, messages.Gradient: gradients.grad,
            messages.SetRequiresGrad: gradients.set_requires_grad, messages.RetainGrad: gradients.retain_grad,
            messages.SetGrad: gradients.set_grad, messages.DropGrads: gradients.drop_grads, messages.Mode: set_mode,
            messages.Seed: queries.set_seed, messages.Query: queries.answer_query, messages.Resume: end_failure,
            messages.Interrupt: end_interrupt,
            messages.RecordEvent: streams.record_event, messages.WaitEvent: streams.wait_event,
            messages.RecordStream: streams.record_stream, messages.Detach: attachments.detach,
            messages.Attach: attachments.attach, messages.ClientNode: client_passes.add_node,
            messages.Watch: client_passes.watch,
            messages.TakePlace: take_place, messages.BeginPass: client_passes.begin,
            messages.TakeGradients: client_passes.take, messages.GiveGradients: client_passes.give,
            messages.EndPass: client_passes.end, messages.ForwardGradient: client_passes.forward_gradient,
            messages.RandomState: queries.note_random_state, messages.LoadModule: kernels.load_module,
            messages.DefineKernel: kernels.define_kernel, messages.SetKernelAttribute: kernels.set_attribute,
            messages.LaunchKernel: kernels.launch_kernel,
            messages.CallExtension: call_extension, **sequences.HANDLERS, **stretches.HANDLERS,
            **graphs.HANDLERS,
        }  # fmt: skip
        return {kind: partial(handler, state) for kind, handler in handlers.items()}

    def receive(self, kind: int, body: memoryview) -> None:
        """Queue a frame. What cannot be decoded fails the session in its turn, like any instruction."""
        inbox = self.state.inbox
        if self.state.plain_handlers:
            note_frame(self.state, len(body))
        try:
            if kind == wire.BATCH:
                inbox.extend(self._batches.taken(body))
            elif kind == wire.CHUNK:
                inbox.append(Chunk(*wire.split_chunk(body)))
            else:
                raise ProtocolError(f"frame of unknown kind {kind}")
        except ProtocolError as error:
            inbox.extend(salvaged(self.state, body, error) if kind == wire.BATCH else [error])
        self.has_work = bool(inbox) and not self.blocked

    def run(self, budget: int) -> int:
        """Execute up to ``budget`` instructions, less where large ones are among them; return how much was used."""
        self.activate()
        rollback, state = self._rollback, self.state
        outstanding, replies = rollback.outstanding, state.replies
        if replies.pending or outstanding:
            self.poll()
        inbox, handlers, done, refuse = state.inbox, self._handlers, rollback.done, _refuse
        values, callers, account, is_call = state.values, CALLERS, self._host_memory, messages.Call
        first_node = next_sequence()
        drawn = state.drawn if state.context.profiler is None else numbers_drawn(state)
        launching = self._launches.backends
        used = executed = 0
        first = inbox[0] if inbox else None
        if first.__class__ is messages.Call:
            self._first = first
        else:
            self._first = None if first.__class__ is messages.Read and len(inbox) == 1 else first_call(inbox)
        if launching:
            self._launches.allow_waiting()
            budget = min(budget, self._launched.room)
        while used < budget and inbox and not replies.holds:
            if outstanding and rollback.must_wait(inbox[0]):
                break
            state.instruction = instruction = inbox.popleft()
            kind = instruction.__class__
            used += 1
            if state.is_stopped and kind not in ALWAYS_EXECUTED:
                self._pass_over(instruction)
                continue
            if outstanding:
                done.append(instruction)
            elif done:
                done.clear()
            try:
                if kind is not is_call:
                    used += handlers.get(kind, refuse)(instruction) or 0
                elif len(outs := instruction.outs) != 1 or (caller := callers.get(instruction.op)) is None:
                    call(state, instruction)
                else:
                    if instruction.freed:
                        state.instruction = FREE
                        forget(state, instruction.freed)
                        state.instruction = instruction
                    raw = instruction.args
                    result = caller.lookups.get(tuple(map(type, raw)), caller.first_call)(raw, state)
                    executed += 1
                    if result.__class__ is Value:
                        values[outs[0]] = result
                    else:
                        bind(values, outs, result if isinstance(result, tuple) else ())
                    result = None  # the next instruction may free it
            except Exception as error:  # whatever it was, it is this session's failure and no other's
                if not rollback.explains():
                    self._fail(instruction, error)
            if outstanding and not done:
                done.append(instruction)
        state.operations += executed
        nodes = next_sequence() - first_node - 1
        if nodes and (nodes := nodes - numbers_drawn(state) + drawn):
            account.nodes += nodes
            if 2 * nodes > used:
                self._batches.note_history()
        if len(values) * TENSOR_BYTES + account.nodes * NODE_BYTES + account.noted > account.quota:
            self._charge(state.instruction)
        if launching:
            try:
                flush = (used < budget and bool(inbox)) or not (inbox or self.expects_more)
                self._launches.end_waiting(flush)
                ahead = self._launched
                ahead.launched += used
                if ahead.launched >= ahead.due and not state.is_stopped:
                    ahead.mark(flush)
            except Exception as error:
                self._fail(state.instruction or FREE, error)
        self._update()
        return used

    def _charge(self, instruction: Any) -> None:
        """Count what the session holds; fail where it is too much, and end the session where it goes on to grow."""
        account = self._host_memory
        try:
            account.settle()
        except OutOfMemoryError as error:
            if account.is_exhausted:
                raise
            if not self.state.is_stopped:
                self._fail(instruction or FREE, error)

    def describe_instruction(self) -> tuple[str, str]:
        """Return the operation that is being executed, and the client's line that it comes from."""
        return name_of(self.state, self.state.instruction), describe_site(self.state, self.state.instruction)

    def describe_last_run(self) -> tuple[str, str]:
        """Return the operation that the last run began with, and the client's line that it comes from."""
        first = self._first
        return ("", "") if first is None else (name_of(self.state, first), describe_site(self.state, first))

    @property
    def on_failure(self) -> Callable[[messages.Failure], None]:
        """What is told of every instruction that fails."""
        return self.state.on_failure

    @on_failure.setter
    def on_failure(self, tell: Callable[[messages.Failure], None]) -> None:
        self.state.on_failure = tell

    @property
    def queued(self) -> int:
        """How many instructions wait to be executed."""
        return len(self.state.inbox)

    @property
    def ahead(self) -> int:
        """How many executed instructions the devices are not known to have completed."""
        return self._launched.unfinished

    @property
    def has_kernels(self) -> bool:
        """Whether the client has launched kernels of its own, of which any may never end."""
        return bool(self.state.modules.last)

    def activate(self) -> None:
        """Make this session's modes the engine's."""
        state, ctx = self.state, self.state.context
        state.instruction = None
        is_another = context.current is not ctx
        context.activate(ctx)
        if self._launches.backends:
            self._launches.enter(ctx)
        if is_another:
            if stacks:
                begin_turn(ctx)
            dtypes.set_default_dtype(state.default_dtype)
            Meta.use_domain(ctx.domain)

    def launch_ahead(self, most: int) -> None:
        """Let at most so many instructions be launched that devices have not completed."""
        self._launched.most = most
        self._launched.due = min(self._launched.due, most)

    def pause(self) -> None:
        """End the run that is going on after its present instruction. A signal handler may call this."""
        self.state.replies.holds = True

    def unpause(self) -> None:
        """Let ``run`` execute again what it is given."""
        self.state.replies.holds = self.state.replies.shows_memory

    def suspend(self) -> Suspended | None:
        """Let other sessions work in the middle of the present instruction, until ``resume``; None where they may not.

        They may between two steps of a backward pass, before which all that was launched was flushed.
        """
        instruction = self.state.instruction
        return Suspended(instruction, next_sequence()) if instruction.__class__ in _INTERRUPTIBLE else None

    def resume(self, suspended: Suspended) -> None:
        """Go on after others have worked. The nodes that they have made are not this session's."""
        self.activate()
        self.state.instruction = suspended.instruction
        self._host_memory.nodes -= next_sequence() - suspended.sequence + 1

    def poll(self) -> None:
        """See what devices have found wrong, and complete the replies that they have come to, in order."""
        rollback = self._rollback
        if rollback.outstanding:
            rollback.look()
        rollback.holds = rollback.holds and bool(rollback.outstanding)
        if self.is_ahead:
            self.activate()
            self._launched.look()
        self.state.replies.deliver()
        self._update()

    def linger(self, seconds: float) -> None:
        """Look for so long whether a device has come to the first reply that waits for it; complete what is ready."""
        replies, until = self.state.replies, time.perf_counter() + seconds
        waiting = replies.pending
        while waiting and not waiting[0].is_ready():
            if replies.holds or time.perf_counter() > until:
                return
        if waiting:
            self.poll()

    def take_device_seconds(self) -> float:
        """Return the seconds for which devices were seen at this session's work since this was last asked."""
        return self._launched.take_device_seconds() if self._launches.backends else 0.0

    def take_replies(self) -> list[Frame]:
        """Return the frames to send, in order; if they show memory, ``frames_left`` has to follow."""
        replies = self.state.replies
        return replies.take() if replies.messages or replies.frames else _NO_FRAMES

    def frames_left(self) -> None:
        """Note that the frames taken were sent, or copied: memory that they show may change again."""
        replies = self.state.replies
        replies.shows_memory = replies.holds = False
        self._update()

    def between_instructions(self, work: Callable[[SessionState], Result], adds: bool = True) -> Result:
        """Do something that did not come in the stream, such as a request over HTTP, with what was launched before.

        OutOfMemoryError where it ``adds`` to what the session holds, and that is too much already.
        """
        self.activate()
        self._launches.end_waiting(flush=True)
        self._rollback.look()
        account, first_node, drawn = self._host_memory, next_sequence(), numbers_drawn(self.state)
        if adds:
            account.check_room(1)
        try:
            return work(self.state)
        finally:
            account.nodes += next_sequence() - first_node - 1 - numbers_drawn(self.state) + drawn
            self._update()

    def close(self) -> None:
        """Drop everything that the client holds, and the replies that were not sent."""
        state = self.state
        self.send = _keep
        drop_profile(state)
        self._batches.clear()
        state.clear()
        self._launches.leave(state.context)
        state.modules.unload_retired()
        self._rollback.close()
        state.context = context.current = Context({})
        self._launched = LaunchedAhead(self._launches.backends, state.context)  # the old one holds what autocast keeps
        self._update()
        self._on_close(self)

    def _update(self) -> None:
        """Set what the owner looks at."""
        state, rollback = self.state, self._rollback
        replies = state.replies
        self.shows_memory = replies.shows_memory
        self.blocked = blocked = replies.shows_memory or rollback.holds
        self.has_work = not blocked and bool(state.inbox)
        self.is_ahead = ahead = bool(self._launches.backends) and self._launched.is_full and not state.is_stopped
        self.waits = ahead or bool(replies.pending) or bool(rollback.outstanding)

    def _answer_early(self, read: messages.Read) -> None:
        """Reply to a read that is still in the inbox; one that fails does so in its turn."""
        state = self.state
        try:
            tensors.read(state, read)
        except Exception:  # not the instruction that is being executed has failed: the read stays in the inbox
            return
        state.inbox.remove(read)
        if state.replies.messages:
            self.send()


def _refuse(thing: Any) -> None:
    raise thing if isinstance(thing, TelegradError) else ProtocolError(f"unexpected {type(thing).__name__}")


def _keep() -> None:
    """Leave replies where they are."""
