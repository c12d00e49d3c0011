"""Runs that allocate results and launch a kernel that was prepared for the operands' metas.

A prepared kernel checks nothing when it is launched. It writes into new values, or into the target of an in-place or
``out=`` form where that cannot clash with an operand. Most operations are executed by functions of this module.
"""

from __future__ import annotations

from typing import Any

from telegrad_protocol.meta import CPU, Meta
from telegrad_protocol.ops import Op

from . import context
from .in_c import values as values_in_c
from .integers.trust import trusting
from .operators import Operator, Preparer, Request, Run
from .value import Backend, Launch, Storage, Value, new_storage, new_value

Arguments = tuple[Any, ...]


def prepared_run(
    operator: Operator, backend: Backend, bound: Arguments, outs: tuple[Meta, ...], is_single: bool, fallback: Run,
    reads_numbers: bool = False,
) -> Run:  # fmt: skip
    """The run of a plan: a prepared kernel where one supports these operands, otherwise ``fallback``.

    With ``reads_numbers`` the kernel reads floats that vary in each call.
    """
    op = operator.op
    is_transfer = any([meta.device is not backend.device for meta in op.metas_in(bound)])
    if backend.key not in (operator.transfers if is_transfer else operator.preparers):
        return fallback
    if is_transfer and reads_numbers:
        return fallback
    if op.form == "functional":
        results = () if op.mutates else outs
        launch = (
            _transfer(operator, backend, bound, results, False)
            if is_transfer
            else _launch(operator, backend, bound, results, False, reads_numbers=reads_numbers)
        )
        if launch is None:
            return fallback
        if op.mutates:
            return _mutating(op.mutates, launch, bool(outs))
        return functional_run(backend, outs, is_single, launch)
    return fallback if is_transfer else _into_targets(operator, backend, bound, is_single, fallback, reads_numbers)


def found_run(operator: Operator, backend: Backend, bound: Arguments, fallback: Run) -> Run:
    """The run of an operation of whose results only data can tell the shapes: ``registry.finds``, or ``fallback``."""
    op, finder = operator.op, operator.finders.get(backend.key)
    if finder is None or any([meta.device is not backend.device for meta in op.metas_in(bound)]):
        return fallback
    run = finder(Request(op, backend, bound, (), None), fallback)
    return fallback if run is None else backend.at_once(run)


def _launch(
    operator: Operator, backend: Backend, args: Arguments, outs: tuple[Meta, ...], overwrites: bool,
    converts: bool = False, reads_numbers: bool = False,
) -> Launch | None:  # fmt: skip
    """The first prepared kernel that supports the operands.

    ``overwrites`` asks for one that may overwrite them, ``converts`` for one that may write another type, and
    ``reads_numbers`` for one that reads floats that vary in each call.
    """
    op = operator.op.base
    request = Request(op, backend, args, outs, op.compute_dtype(args) if op.promotion else None, reads_numbers)
    for preparer in operator.preparers[backend.key]:
        if reads_numbers and not preparer.reads_numbers:
            return None
        if preparer.elementwise >= overwrites and preparer.converts >= converts:
            launch = preparer.factory(request)
            if launch is not None:
                return _in_its_turn(op, backend, args, launch, preparer)
    return None


def _in_its_turn(op: Op, backend: Backend, args: Arguments, launch: Launch, preparer: Preparer) -> Launch:
    """``launch``, which waits with others where it may, or is made after all of them."""
    if preparer.deferrable:
        return backend.deferring(launch)
    now = backend.at_once(launch)
    if not backend.can_capture:
        return now
    return trusting(op, args, now, backend.deferring(launch) if preparer.deferrable_unchecked else now)


def _transfer(
    operator: Operator, backend: Backend, args: Arguments, outs: tuple[Meta, ...], overwrites: bool
) -> Launch | None:
    """The same for operands on another device."""
    launch = operator.transfers[backend.key](Request(operator.op.base, backend, args, outs, None))
    return None if launch is None else backend.at_once(launch)


def functional_run(backend: Backend, outs: tuple[Meta, ...], is_single: bool, launch: Launch) -> Run:
    """Allocate values, have ``launch`` write them, and return them."""
    if is_single:
        return _into_new_value(backend, outs[0], launch)
    in_c = values_in_c.run_of_several(backend, outs, launch)
    if in_c is not None:
        return in_c
    empty = backend.empty

    def run_several(args: Arguments) -> Any:
        values = tuple(map(empty, outs))
        launch(args, values)
        return values

    return run_several


def _into_new_value(backend: Backend, meta: Meta, launch: Launch) -> Run:
    """Allocate a value, have ``launch`` write it, and return it.

    Most operations do no more than this, so `AllocatingBackend.empty` is written out here.
    """
    nbytes, key, allocator = meta.extent * meta.dtype.itemsize, backend.key, backend.allocator
    in_c = values_in_c.run_of(backend, nbytes, meta, launch)
    if in_c is not None:
        return in_c

    def run(args: Arguments) -> Value:
        backend.in_allocator = True
        try:
            stream = backend.stream if backend.apart is None else backend.apart.get(nbytes, backend.stream)
            block = allocator.allocate(nbytes, stream, context.current.owner)
        finally:
            backend.in_allocator = False
            if backend.queued_frees:
                backend.free_queued()
        storage: Storage = new_storage()
        storage.backend, storage.block, storage.nbytes = backend, block, nbytes
        storage.keeper, storage.version = None, 0
        value: Value = new_value()
        value.storage, value.meta, value.backend = storage, meta, backend
        value.base = value.autograd = value._array = None
        value.keys = key
        launch(args, (value,))
        return value

    return run


def overwriting_run(
    operator: Operator, backend: Backend, bound: Arguments, place: int, reads_numbers: bool = False
) -> Run | None:
    """The run of an operation that writes its result over the operand in a place, which has the same layout.

    It returns that operand. With ``reads_numbers`` it reads floats that vary in each call. None where no prepared
    kernel may overwrite what it reads.
    """
    if operator.op.form != "functional" or backend.key not in operator.preparers:
        return None
    with backend.as_current():
        launch = _launch(operator, backend, bound, (bound[place],), True, reads_numbers=reads_numbers)
    if launch is None:
        return None
    fire = launch

    def run(args: Arguments) -> Value:
        value: Value = args[place]
        fire(args, (value,))
        value.storage.version += 1
        return value

    run_there = backend.on_device(run)
    return backend.threaded(run_there, bound[place].nbytes) if backend.device is CPU else run_there


def _overwriting_run_of_several(
    operator: Operator, backend: Backend, bound: Arguments, outs: tuple[Meta, ...]
) -> Run | None:  # fmt: skip
    """The same for the first operand, where an operation has several results: the first lies there."""
    factory = operator.overwriters.get(backend.key)
    if factory is None:
        return None
    with backend.as_current():
        launch = factory(Request(operator.op.base, backend, bound, outs, None))
    if launch is None:
        return None
    fire, empty = backend.deferring(launch), backend.empty

    def run(args: Arguments) -> tuple[Value, ...]:
        values = (args[0], *map(empty, outs[1:]))
        fire(args, values)
        return values

    return backend.on_device(run)


def spending_run(
    operator: Operator, backend: Backend, bound: Arguments, outs: tuple[Meta, ...], is_single: bool, run: Run,
    reads_numbers: bool = False,
) -> Run:  # fmt: skip
    """``run``, which writes its result over the first operand where the context says that nothing else needs that.

    It is ``run`` itself where no kernel can do so, or for small operands. The result is a new value, whose storage
    takes the memory over.
    """
    if (
        not bound or bound[0] is not outs[0] or outs[0].nbytes < backend.least_spent or operator.op.form != "functional"
        or operator.op.mutates or not _may_overwrite(operator, backend.key, is_single)
    ):  # fmt: skip
        return run
    over: Run | None = None

    def run_or_overwrite(args: Arguments) -> Any:
        nonlocal over
        current = context.current
        spent = current.spent
        if spent is None or spent is not args[0]:
            return run(args)
        current.spent = None
        if over is None:
            found = (
                overwriting_run(operator, backend, bound, 0, reads_numbers)
                if is_single
                else _overwriting_run_of_several(operator, backend, bound, outs)
            )
            over = found or run
        if over is run:
            return run(args)
        value = _taking_over(spent)
        result = over((value, *args[1:]))
        value.storage.version = 0
        return result

    return run_or_overwrite


def _may_overwrite(operator: Operator, key: int, is_single: bool) -> bool:
    if not is_single:
        return key in operator.overwriters
    return any([preparer.elementwise for preparer in operator.preparers.get(key, ())])


def _taking_over(spent: Value) -> Value:
    """Return a value on a storage of its own that has taken over the memory of another one."""
    before = spent.storage
    storage = before.keeper = Storage(before.backend, before.block, before.nbytes)
    return Value(storage, spent.meta, spent.backend)


def _mutating(mutates: tuple[int, ...], launch: Launch, has_result: bool) -> Run:
    """The run of an operation that only exists in place."""

    def run(args: Arguments) -> Any:
        launch(args, ())
        values_in_c.note_writes(args, mutates)
        return args[mutates[0]] if has_result else None

    return run


def _into_targets(
    operator: Operator, backend: Backend, bound: Arguments, is_single: bool, fallback: Run, reads_numbers: bool
) -> Run:
    op = operator.op
    args = bound[: len(op.base.params)]
    targets: tuple[Meta, ...] = tuple([bound[p] for p in op.mutates])
    inferred = op.base.infer(args)
    if inferred is None:
        return fallback
    results = inferred if isinstance(inferred, tuple) else (inferred,)
    if not _have_shapes(targets, results):
        return fallback
    converts = any([r.dtype is not t.dtype for r, t in zip(results, targets, strict=True)])
    if converts and not all([meta.dtype.is_floating_point for meta in (*results, *targets)]):
        return fallback
    launch = _launch(operator, backend, args, targets, True, converts, reads_numbers)
    overwrites = launch is not None
    if launch is None and op.form == "out":
        launch = _launch(operator, backend, args, targets, False, converts, reads_numbers)
    if launch is None:
        return fallback
    if is_single and len(targets) == 1 and not any([arg.__class__ is tuple and _has_metas(arg) for arg in args]):
        return _into_one(op.mutates[0], args, targets[0], launch, overwrites, fallback)
    chosen, count = launch, len(op.base.params)

    def run(all_args: Arguments) -> Any:
        outs = tuple([all_args[p] for p in op.mutates])
        if any([_clashes(arg, out, overwrites) for arg in all_args[:count] for out in outs]):
            return fallback(all_args)
        chosen(all_args, outs)
        for out in outs:
            out.storage.version += 1
        return outs[0] if is_single else outs

    return run


def _has_metas(items: Arguments) -> bool:
    return any([isinstance(item, Meta) for item in items])


def _into_one(place: int, bound: Arguments, target: Meta, launch: Launch, overwrites: bool, fallback: Run) -> Run:
    """The usual case: one target, and no list of tensors among the operands."""
    others = [
        position
        for position, item in enumerate(bound)
        if isinstance(item, Meta) and not (overwrites and item is target)  # read before it is written
    ]

    def run(args: Arguments) -> Any:
        out = args[place]
        storage = out.storage
        for position in others:
            if args[position].storage is storage:
                return fallback(args)
        launch(args, (out,))
        storage.version += 1
        return out

    return run


def _have_shapes(targets: tuple[Meta, ...], results: tuple[Meta, ...]) -> bool:
    """Whether the targets have the shapes of the results."""
    return len(results) == len(targets) and all(r.shape == t.shape for r, t in zip(results, targets, strict=True))


def _clashes(arg: Any, out: Value, overwrites: bool) -> bool:
    """Whether writing ``out`` could change an operand before it is read."""
    if arg.__class__ is tuple:
        return any([_clashes(item, out, overwrites) for item in arg])
    return arg.__class__ is Value and arg.storage is out.storage and not (overwrites and arg.meta is out.meta)
