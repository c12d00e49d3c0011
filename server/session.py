"""One client's values, order and errors: takes frames of instructions, executes them, returns frames of replies.

Owns no socket. Fail-stop: after an instruction failed, nothing but frees, sites and modes is executed until the client
has seen the failure and says ``Resume``; what would have been computed is marked as absent, with the reason.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad_protocol import dtypes, messages, wire
from telegrad_protocol.errors import NotComputedError, ProtocolError, TelegradError, UnknownIdError
from telegrad_protocol.meta import Device, Meta

from . import failures, queries
from .arguments import BY_INDEX, decode_arguments, describe_operands
from .engine import context
from .engine.autograd import engine as autograd
from .engine.autograd.graph import make_leaf
from .engine.autograd.inplace import requires_grad
from .engine.backend import Backend
from .engine.context import Context
from .engine.dispatcher import dispatch
from .engine.random import Generator
from .engine.value import Value
from .transfer import Incoming, Outgoing

if TYPE_CHECKING:
    from .host import Host

Frame = tuple[int, list[bytes | memoryview]]


class Absent:
    """Stands for a result that was never computed."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Session:
    """A client's side of the engine."""

    def __init__(self, number: int, host: Host, backends: dict[Device, Backend], default_device: Device) -> None:
        self.number = number
        self.host = host
        self.context = Context(backends, number)
        self._accelerators = [b for d, b in backends.items() if d.type != "cpu"]
        self.context.generators = {device: Generator() for device in backends}
        for generator in self.context.generators.values():
            generator.seed()
        self.default_device = default_device
        self.default_dtype = dtypes.float32
        self.values: dict[int, Value | Absent] = {}
        self.sites: dict[int, str] = {}
        self.inbox: deque[Any] = deque()
        self.replies: list[messages.Reply] = []
        self.frames: list[Frame] = []
        self.reads: deque[Outgoing] = deque()
        self.upload: Incoming | None = None
        self.failure = 0
        self.failures = 0
        self.failure_reason = ""
        self.last_failure: messages.Failure | None = None
        self.opened = time.time()
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Call: self._call, messages.Free: self._free, messages.Site: self._site,
            messages.Upload: self._upload, messages.Read: self._read, messages.Describe: self._describe,
            messages.Backward: self._backward, messages.Gradient: self._gradient, messages.Mode: self._mode,
            messages.SetRequiresGrad: self._set_requires_grad, messages.RetainGrad: self._retain_grad,
            messages.SetGrad: self._set_grad, messages.Seed: self._seed, messages.Query: self._query,
            messages.Resume: self._resume, Chunk: self._chunk,
        }  # fmt: skip

    # -- what the worker calls ------------------------------------------------------------------------------------

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
    def has_work(self) -> bool:
        """Whether instructions are waiting."""
        return bool(self.inbox)

    @property
    def waits(self) -> bool:
        """Whether reads wait for the device."""
        return bool(self.reads)

    def run(self, budget: int) -> int:
        """Execute up to ``budget`` instructions; returns how many it executed."""
        self.activate()
        inbox, handlers = self.inbox, self._handlers
        count = 0
        while count < budget and inbox:
            instruction = inbox.popleft()
            count += 1
            handler = handlers.get(instruction.__class__, self._refuse)
            if self.failure and instruction.__class__ not in _ALWAYS:
                self._skip(instruction)
                continue
            try:
                handler(instruction)
            except Exception as error:  # whatever it was, it is this session's failure and nobody else's
                self._fail(instruction, error)
        self.host.operations += count
        return count

    def activate(self) -> None:
        """Make this session's modes the engine's."""
        context.activate(self.context)
        for backend in self._accelerators:
            backend.enter(self.context)
        dtypes.set_default_dtype(self.default_dtype)

    def poll(self) -> None:
        """Answer reads whose copies have arrived, in order."""
        while self.reads and self.reads[0].is_ready():
            self._deliver(self.reads.popleft())

    def take_replies(self) -> list[Frame]:
        """Frames to send, in order."""
        if self.replies:
            self._close_batch()
        frames, self.frames = self.frames, []
        return frames

    def control(self, verb: str, args: list[Any]) -> Any:
        """Answer a request from beside the stream, such as one over HTTP."""
        from . import controls

        self.activate()
        return controls.answer_session(self, verb, args)

    def close(self) -> None:
        """Drop everything that the client holds."""
        self.inbox.clear()
        self.reads.clear()
        self.upload = None
        self.values.clear()
        for backend in self._accelerators:
            backend.leave(self.context)
        self.context = Context({})
        self.host.forget(self)

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, id: int) -> Value:
        """The value that the client calls ``id``."""
        found = self.values.get(id)
        if found.__class__ is Value:
            return found  # type: ignore[return-value]
        if isinstance(found, Absent):
            raise NotComputedError(f"this tensor was never computed: {found.reason}")
        raise UnknownIdError(f"the session has no tensor number {id}")

    def _optional(self, id: int | None) -> Value | None:
        return None if id is None else self.value(id)

    def _bind(self, outs: tuple[int, ...], results: tuple[Any, ...]) -> None:
        if len(outs) != len(results):
            raise ProtocolError(f"{len(outs)} ids for {len(results)} results")
        for id, result in zip(outs, results, strict=True):
            self.values[id] = result

    # -- instructions ---------------------------------------------------------------------------------------------

    def _call(self, call: messages.Call) -> None:
        index = call.op
        if index >= len(BY_INDEX) or index < 0:
            raise ProtocolError(f"there is no operation number {index}")
        operator = BY_INDEX[index]
        result = dispatch(operator, decode_arguments(self, operator.op, call.args))
        outs = call.outs
        if result.__class__ is Value:
            if len(outs) == 1:
                self.values[outs[0]] = result
            elif outs or not operator.op.mutates:
                self._bind(outs, (result,))
        elif outs:
            self._bind(outs, result if isinstance(result, tuple) else ())

    def _free(self, free: messages.Free) -> None:
        for id in free.ids:
            self.values.pop(id, None)

    def _site(self, site: messages.Site) -> None:
        self.sites[site.number] = f"{site.file}:{site.line} in {site.function}"

    def _upload(self, upload: messages.Upload) -> None:
        backend = self.host.backend(upload.device)
        if not 0 <= upload.dtype < len(dtypes.ALL) or min(upload.shape, default=0) < 0:
            raise ProtocolError(f"upload with dtype code {upload.dtype} and shape {list(upload.shape)}")
        value = backend.empty(Meta.of(upload.shape, dtypes.ALL[upload.dtype], backend.device))
        incoming = Incoming(upload.id, value)
        self.values[upload.id] = value
        if upload.data is not None:
            incoming.write(0, memoryview(upload.data))
            incoming.require_complete()
        elif not incoming.is_complete:
            self.upload = incoming

    def _chunk(self, chunk: Chunk) -> None:
        upload = self.upload
        if upload is None or upload.id != chunk.owner:
            raise ProtocolError(f"a chunk for tensor number {chunk.owner}, which is not being uploaded")
        upload.write(chunk.offset, chunk.data)
        if upload.is_complete:
            self.upload = None

    def _read(self, read: messages.Read) -> None:
        value = self.value(read.id)
        outgoing = Outgoing(read.request, value)
        if self.reads or not outgoing.is_ready():
            self.reads.append(outgoing)
        else:
            self._deliver(outgoing)

    def _deliver(self, outgoing: Outgoing) -> None:
        message, chunks = outgoing.frames()
        self.replies.append(message)
        if chunks:
            self._close_batch()
            self.frames.extend(chunks)

    def _close_batch(self) -> None:
        self.frames.append((wire.BATCH, [wire.encode_batch(self.replies)]))
        self.replies = []

    def _describe(self, describe: messages.Describe) -> None:
        found = [self.value(id) for id in describe.ids]
        metas = [(v.shape, v.meta.strides, v.meta.offset, v.dtype.code, requires_grad(v)) for v in found]
        self.replies.append(messages.Description(describe.request, metas))

    def _backward(self, backward: messages.Backward) -> None:
        roots = [self.value(id) for id in backward.roots]
        gradients = [self._optional(id) for id in backward.gradients]
        leaves = [(self.value(leaf), grad) for leaf, grad in backward.leaves]
        autograd.backward(
            roots, gradients, retain_graph=backward.retain_graph, create_graph=backward.create_graph,
            inputs=[leaf for leaf, _ in leaves] if backward.restricted else None,
        )  # fmt: skip
        for leaf, id in leaves:
            grad = leaf.autograd.grad if leaf.autograd is not None else None
            self.values[id] = grad if grad is not None else Absent("no gradient reached it")

    def _gradient(self, gradient: messages.Gradient) -> None:
        found = autograd.grad(
            [self.value(id) for id in gradient.roots], [self._optional(id) for id in gradient.gradients],
            [self.value(id) for id in gradient.inputs], retain_graph=gradient.retain_graph,
            create_graph=gradient.create_graph, allow_unused=gradient.allow_unused,
        )  # fmt: skip
        for id, result in zip(gradient.outs, found, strict=True):
            if id is not None:
                self.values[id] = result if result is not None else Absent("no gradient reached it")

    def _mode(self, mode: messages.Mode) -> None:
        if mode.name == "grad":
            self.context.grad_enabled = bool(mode.value)
        elif mode.name == "inference":
            self.context.set_inference(bool(mode.value))
        elif mode.name == "trace":
            self.context.trace = [] if mode.value else None
        elif mode.name == "default_dtype" and mode.value in range(len(dtypes.ALL)):
            dtypes.set_default_dtype(dtypes.ALL[mode.value])
            self.default_dtype = dtypes.ALL[mode.value]
        else:
            raise ProtocolError(f"unknown mode {mode.name!r} or value {mode.value!r}")

    def _set_requires_grad(self, message: messages.SetRequiresGrad) -> None:
        make_leaf(self.value(message.id), message.value)

    def _retain_grad(self, message: messages.RetainGrad) -> None:
        autograd.retain_grad(self.value(message.id))

    def _set_grad(self, message: messages.SetGrad) -> None:
        autograd.set_grad(self.value(message.id), self._optional(message.grad))

    def _seed(self, seed: messages.Seed) -> None:
        for device, generator in self.context.generators.items():
            if not seed.device or device == Device(seed.device):
                generator.manual_seed(seed.value)

    def _query(self, query: messages.Query) -> None:
        self.replies.append(messages.Answer(query.request, queries.answer(self, query.what, query.args)))

    def _resume(self, resume: messages.Resume) -> None:
        if resume.failure == self.failure:
            self.failure = 0

    def _refuse(self, thing: Any) -> None:
        raise thing if isinstance(thing, TelegradError) else ProtocolError(f"unexpected {type(thing).__name__}")

    # -- failing --------------------------------------------------------------------------------------------------

    def _fail(self, instruction: Any, error: Exception) -> None:
        self.failures += 1
        self.failure = self.failures
        self.upload = None
        op = BY_INDEX[instruction.op].op if _names_operation(instruction) else None
        failure = failures.describe(
            self.failure, error,
            request=getattr(instruction, "request", None),
            operation=op.public if op else type(instruction).__name__.lower(),
            operands=describe_operands(self, op, instruction.args) if op else "",
            site=self.sites.get(getattr(instruction, "site", 0), ""),
        )  # fmt: skip
        self.failure_reason = f"{failure.operation} failed{f' at {failure.site}' if failure.site else ''}: {failure.message}"
        self._mark_absent(instruction)
        self.last_failure = failure
        self.replies.append(failure)

    def _skip(self, instruction: Any) -> None:
        """What a failed session does with an instruction: results become absent, requests get the failure."""
        self._mark_absent(instruction)
        request = getattr(instruction, "request", None)
        if request is not None and self.last_failure is not None:
            self.replies.append(failures.for_request(self.last_failure, request))

    def _mark_absent(self, instruction: Any) -> None:
        for id in failures.results_of(instruction):
            self.values.setdefault(id, Absent(self.failure_reason))


class Chunk:
    """A piece of an upload, as it waits in the inbox."""

    __slots__ = ("data", "offset", "owner")

    def __init__(self, owner: int, offset: int, data: memoryview) -> None:
        self.owner = owner
        self.offset = offset
        self.data = data


def _names_operation(instruction: Any) -> bool:
    return isinstance(instruction, messages.Call) and 0 <= instruction.op < len(BY_INDEX)


_ALWAYS = frozenset((messages.Free, messages.Site, messages.Mode, messages.Resume))
