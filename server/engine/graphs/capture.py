"""Noting what a session has a device do, so that it can be done again, and undoing what it did meanwhile.

While a graph is captured its operations are executed, so that everything they depend on is as it will be. What they
change of memory that was there before is copied beforehand and put back at the end, and so are generators: as if
nothing had been executed, which is what a capture promises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from server.allocator.core.mem_pool import MemPool
from server.engine import context as engine_context
from server.engine import keys
from server.engine.context import Context
from server.engine.operators import Operator
from server.engine.plan import run_backend
from server.engine.replay import record_key
from server.engine.value import Backend, Storage, Value, memory_of
from telegrad_protocol.dtypes import uint8
from telegrad_protocol.errors import CaptureError, LimitExceededError
from telegrad_protocol.meta import CPU, Meta

from .graph import OPERATION_BYTES, CapturedGraph
from .memory import Allocation, Noting, route, routed
from .noted import Noted, StandIns, values_in

NOT_PERMITTED: Final = "operation not permitted when stream is capturing"
MOST_OPERATIONS: Final = 1 << 16
_PORTION: Final = 64
"""After so many operations it is seen whether the session may hold as many more."""


class Capture:
    """The operations of one session on one device, from when this is made until ``end``.

    ``concerns`` says whether what is executed now belongs to the capture. Memory comes from ``pool`` meanwhile.
    """

    lets_spend = False

    def __init__(self, context: Context, backend: Backend, pool: MemPool, concerns: Callable[[], bool]) -> None:
        self.backend = backend
        self.pool = pool
        self.operations: list[Noted] = []
        self._context = context
        self._concerns = concerns
        self._noting = Noting(self._without_pool)
        self._stand_ins = StandIns(backend, self._noting)
        self._is_noted = False
        """Whether the operation that is being executed is one of the capture."""
        self._before: dict[int, tuple[Storage, Value]] = {}
        """Copies of memory that was there before, by the number of its storage, as it was."""
        self._random = [(g, g.initial_seed(), g.offset) for g in context.generators.values()]
        backend.synchronize()
        with backend.exclusive_allocator() as allocator:
            allocator.begin_allocate_to_pool(pool, context.owner)
        self._source = route(backend.allocator, context.owner, self._noting)
        self._recorder = record_key.start(context, self)

    def end(self) -> CapturedGraph:
        """Note nothing more, put everything back as it was, and return what was captured."""
        context, backend = self._context, self.backend
        record_key.stop(context, self._recorder)
        route(backend.allocator, context.owner, self._source)
        with backend.exclusive_allocator() as allocator:
            allocator.end_allocate_to_pool(context.owner)
        self._put_back()
        self._stand_ins.forget_elements()
        for generator, seed, offset in self._random:
            generator.restore(seed, offset)
        backend.synchronize()
        return CapturedGraph(backend, context.owner, self.pool, self.operations)

    def _put_back(self) -> None:
        current, before = engine_context.current, self._context.excluded
        engine_context.activate(self._context)
        self._context.excluded |= keys.AUTOGRAD
        try:
            for storage, copy in self._before.values():
                _bytes_of(storage).copy_(copy)
        finally:
            self._context.excluded = before
            engine_context.activate(current)
        self._before.clear()

    def note_beginning(self, operator: Operator, args: tuple[Any, ...]) -> None:
        """Note that an operation begins: memory that it changes is copied."""
        self._is_noted = operator.op.view_of is None and self._concerns() and self._is_here(args)
        self._noting.made = [] if self._is_noted else None
        if self._is_noted and operator.op.mutates:
            self._copy(tuple([args[position] for position in operator.op.mutates]))

    def _is_here(self, args: tuple[Any, ...]) -> bool:
        """Whether an operation on these arguments is one of the device: it has values there, or names the device."""
        if self._reads(args):
            return True
        device = self.backend.device
        named = any([arg is device or (arg.__class__ is str and arg == device.name) for arg in args])
        return named and all([value.device is CPU for value in values_in(args)])

    def _reads(self, args: tuple[Any, ...]) -> bool:
        return any([value.backend is self.backend for value in values_in(args)])

    def _copy(self, targets: tuple[Any, ...]) -> None:
        storages = {id(s): s for s in [memory_of(value.storage) for value in values_in(targets)]}
        new = [s for s in storages.values() if id(s) not in self._before and self._stand_ins.is_outside(s)]
        if new:
            self.outside(partial(self._copy_storages, new))

    def _copy_storages(self, storages: list[Storage]) -> None:
        for storage in storages:
            if storage.nbytes:
                self._before[id(storage)] = (storage, _bytes_of(storage).clone())

    def outside(self, work: Callable[[], Any]) -> Any:
        """Do work that is no part of the capture, with memory that is not from its pool."""
        context = self._context
        record_key.stop(context, self._recorder)
        try:
            with routed(self.backend.allocator, context.owner, self._source):
                return self._without_pool(work)
        finally:
            record_key.start(context, self)

    def _without_pool(self, work: Callable[[], Any]) -> Any:
        """Do work with memory that is not from the capture's pool."""
        backend, owner = self.backend, self._context.owner
        with backend.exclusive_allocator() as allocator:
            allocator.end_allocate_to_pool(owner)
        try:
            return work()
        finally:
            with backend.exclusive_allocator() as allocator:
                allocator.begin_allocate_to_pool(self.pool, owner)

    def execute(self, name: str, run: Callable[[tuple[Any, ...]], Any], args: tuple[Any, ...]) -> None:
        """Execute and note what is no operation: it may change the memory of all its arguments, and returns nothing."""
        self._copy(args)
        made: list[Allocation] = []
        self._noting.made = made
        try:
            run(args)
        finally:
            self._noting.made = None
        self._add(Noted(name, run, self._stand_ins.of(args), (), tuple(made)))

    def _add(self, operation: Noted) -> None:
        count = len(self.operations)
        if count >= MOST_OPERATIONS:
            raise LimitExceededError(f"capture: a graph has at most {MOST_OPERATIONS} operations; capture several")
        if not count % _PORTION:
            self._context.host_memory.check_room((count + _PORTION) * OPERATION_BYTES)
        self.operations.append(operation)

    def note_operation(self, operator: Operator, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        """Note an operation that the backend has executed."""
        if not self._is_noted:
            return
        made, self._noting.made = self._noting.made or [], None
        plan = operator.plans.get(signature)
        if plan is not None and plan.outs is None and not operator.op.mutates:
            raise CaptureError(f"{operator.op.public}: {NOT_PERMITTED}: the shape of its result depends on elements")
        results = result if result.__class__ is tuple else () if result is None else (result,)
        if self._reads(args) and not all([value.backend is self.backend for value in results]):
            raise CaptureError(f"{operator.op.public}: {NOT_PERMITTED}: it copies to the host")
        run = plan.run if plan is not None else partial(_run, operator, signature)
        stand = self._stand_ins.of
        self._add(Noted(operator.op.public, run, stand(args), stand(results), tuple(made)))

    def note_other(self, name: str) -> None:
        """Refuse an operation that is more than what backends execute."""
        if self._is_noted:
            raise CaptureError(f"{name}: {NOT_PERMITTED}")

    def note_upload(self, value: Value) -> None:
        """Do nothing: who has uploaded it asks for what stands for it."""

    def note_elements_read(self, name: str) -> None:
        """Refuse an operation that looks at elements on the host."""
        if self._is_noted:
            raise CaptureError(f"{name}: {NOT_PERMITTED}: it looks at elements of a tensor on the host")


def _run(operator: Operator, signature: Any, args: tuple[Any, ...]) -> Any:
    return run_backend(operator, args, signature, 0)


def _bytes_of(storage: Storage) -> Value:
    """The bytes of a storage; writing to them does not count as a modification."""
    meta = Meta.of((storage.nbytes,), uint8, storage.backend.device)
    return Value(Storage(storage.backend, storage.block, storage.nbytes, storage), meta, storage.backend)
