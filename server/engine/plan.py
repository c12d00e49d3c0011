"""Plans: how one operation runs on operands of given metas, worked out once and kept.

A plan holds the results' metas, the casts of the operands, and the kernel. Running it is the bottom of every dispatch.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from server.engine.array_library.dtypes import BY_NUMPY, HALVES, NUMPY_DTYPES
from server.engine.value import Backend
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import DeviceError, InplaceError, NotSupportedError, ShapeError
from telegrad_protocol.layout import is_dense, overlaps_itself
from telegrad_protocol.meta import CPU, Device, Meta

from . import blas_threads as blas
from . import context
from .keys import AUTOGRAD
from .operators import KernelInfo, Operator
from .prepared import Run, array_run, prepared_run
from .value import MULTIPLE, TRACKED, UNTRACKED, Value, new_value

Arguments = tuple[Any, ...]
_array_of = attrgetter("array")
_CAPACITY = 1 << 15
_KEPT_RESULTS = 256
"""Plans of more results are made anew each time: they would fill the memory."""
_SMALL_WORK = 1 << 20
"""Temporaries below this many bytes are nobody's concern."""


def run_backend(operator: Operator, args: Arguments, signature: tuple[Any, ...], key_set: int) -> Any:
    """The kernel at the backend key: look the plan up, or make it, and run it."""
    plan = operator.plans.get(signature) or plan_of(operator, args, signature)
    return plan.run(args)


def plan_of(operator: Operator, args: Arguments, signature: tuple[Any, ...]) -> Plan:
    """The plan of a call: the one that is kept, or a new one."""
    plan: Plan | None = operator.plans.get(signature)
    if plan is None:
        plan = Plan(operator, args)
        if plan.outs is None or len(plan.outs) <= _KEPT_RESULTS:
            remember(operator, signature, plan)
    return plan


def remember(operator: Operator, signature: tuple[Any, ...], plan: Any) -> None:
    """Keep what was worked out for a signature; all is forgotten when a client has come with too many."""
    if len(operator.plans) >= _CAPACITY:
        operator.plans.clear()
    operator.plans[signature] = plan


def metas_of(args: Arguments) -> Arguments:
    """The arguments of a shape rule: values replaced by their metas."""
    return tuple([_meta_of(arg) for arg in args])


def _meta_of(arg: Any) -> Any:
    if arg.__class__ is Value:
        return arg.meta
    return tuple([_meta_of(a) for a in arg]) if arg.__class__ is tuple else arg


class Plan:
    """One operation on operands of given metas."""

    __slots__ = (
        "backend", "casts", "computes_half", "count", "gradient_plans", "info", "keyword_names", "operator", "outs",
        "positional", "ready", "recorded", "run", "wrapped",
    )  # fmt: skip

    def __init__(self, operator: Operator, args: Arguments) -> None:
        op = operator.op
        bound = metas_of(args)
        inferred = op.infer(bound)
        self.operator = operator
        self.outs: tuple[Meta, ...] | None = (
            inferred if isinstance(inferred, tuple) else (inferred,) if inferred else None
        )
        self.count = -1 if isinstance(inferred, tuple) else 1
        self.positional = op.base.positional
        self.keyword_names = _keyword_names(op)
        self.gradient_plans: dict[int, Any] = {}
        """What autograd has worked out for these operands, by which of them require a gradient."""
        self.recorded: Run | None = None
        """``run`` with what autograd does for these operands around it."""
        self.run: Run = self._run_view
        if op.view_of is not None:
            if self.count == 1 and op.differentiable:
                self.run = self._one_view(op.view_of, *self.outs or ())
            return
        self.backend = _backend_of(operator, self.outs, bound)
        self.info = _kernel_of(operator, self.backend)
        self.casts = self._plan_casts(bound)
        self.ready = frozenset([p for p, item in enumerate(bound) if p not in self.casts and self._is_ready(item)])
        self.wrapped = _wrapped_scalars(op, bound)
        self.computes_half = any(m.dtype in HALVES for m in self.outs or ()) and not self.info.movement
        self.run = self._choose(op.form, bound)
        self.run = self.backend.at_once(self.run)
        work = self._unbounded_bytes(bound)
        if work > _SMALL_WORK:
            self.run = self._with_room(work, self.run)
        if self.outs is not None or op.mutates:
            given = tuple([self.wrapped.get(position, item) for position, item in enumerate(bound)])
            self.run = prepared_run(operator, self.backend, given, self.outs or (), self.count == 1, self.run)
        if self.backend.device is CPU and self._bytes(bound) >= blas.LARGE:
            self.run = blas.on_all_threads(self.run)
        if op.mutates:
            _check_targets(op.public, [bound[p] for p in op.mutates])

    def _bytes(self, bound: Arguments) -> int:
        """Of operands and results."""
        return sum([meta.nbytes for meta in (*self.operator.op.metas_in(bound), *(self.outs or ()))])

    def _unbounded_bytes(self, bound: Arguments) -> int:
        """The largest operand that shows elements many times, or result that the kernel makes itself: memory that no
        value of the session stands for.
        """
        shown = [m for m in self.operator.op.metas_in(bound) if m.numel > m.extent - m.offset]
        made = () if self.info.wants_out else self.outs or ()
        return max([meta.nbytes for meta in (*shown, *made)], default=0)

    def _with_room(self, nbytes: int, run: Any) -> Any:
        def checked(args: Arguments) -> Any:
            self.backend.check_room(nbytes)
            return run(args)

        return checked

    def _is_simple(self, bound: Arguments) -> bool:
        """Whether the kernel writes into new values from the operands as they are."""
        needs_nothing = not self.casts and not self.computes_half and not self._has_extras(bound)
        return self.outs is not None and self.info.wants_out and needs_nothing

    def _has_extras(self, bound: Arguments) -> bool:
        nested = any(isinstance(b, tuple) and any(isinstance(m, Meta) for m in b) for b in bound)
        elsewhere = any(isinstance(b, Meta) and b.device is not self.backend.device for b in bound)
        named = any(isinstance(b, Meta) for b in bound[self.positional :])
        return nested or elsewhere or named or bool(self.wrapped) or self.info.wants_generator or self.info.wants_meta

    def _choose(self, form: str, bound: Arguments) -> Run:
        if form == "inplace":
            return self._run_inplace
        if form == "out":
            return self._run_out_form
        if self.operator.op.mutates:
            return self._run_mutating
        if self._is_simple(bound):
            return self._simple_run(bound)
        return self._run_functional

    def _plan_casts(self, bound: Arguments) -> dict[int, DType]:
        """The operands that must change type before the kernel sees them."""
        op = self.operator.op
        target = op.compute_dtype(bound) if op.promotion else None
        casts = {}
        for position in op.base.tensor_positions:
            value = bound[position]
            for meta in value if isinstance(value, tuple) else (value,):
                if isinstance(meta, Meta):
                    wanted = self._working_type(target if target and position in op.promoted else meta.dtype)
                    if wanted is not meta.dtype:
                        casts[position] = wanted
        return casts

    def _is_ready(self, item: Any) -> bool:
        """Whether this is a list of tensors that the kernel takes as they are."""
        return item.__class__ is tuple and all(isinstance(m, Meta) and m.device is self.backend.device for m in item)

    def _working_type(self, dtype: DType) -> DType:
        return dtypes.float32 if dtype in HALVES and not self.info.movement else dtype

    def _operands(self, args: Arguments) -> list[Any]:
        """Arguments as the kernel takes them: arrays, moved to the device and cast."""
        count = len(self.operator.op.base.params)
        return [self._operand(position, arg) for position, arg in enumerate(args[:count])]

    def _operand(self, position: int, arg: Any) -> Any:
        if arg.__class__ is Value:
            array = arg.array if arg.backend is self.backend else self.backend.array_from(arg)
            wanted = self.casts.get(position)
            return array if wanted is None else array.astype(NUMPY_DTYPES[wanted])
        if arg.__class__ is tuple:
            if position in self.ready:
                return tuple(map(_array_of, arg))
            return tuple([self._operand(position, a) for a in arg])
        return self.wrapped.get(position, arg) if self.wrapped else arg

    def _call(self, args: Arguments, out: Any) -> Any:
        operands = self._operands(args)
        keywords = dict(zip(self.keyword_names, operands[self.positional :], strict=True))
        info = self.info
        if info.wants_out:
            keywords["out"] = out
        if info.wants_generator:
            keywords["generator"] = context.current.generators[self.backend.device]
        if info.wants_meta:
            keywords["meta"] = self.outs if self.count < 0 else self.outs[0] if self.outs else None
        return info.function(self.backend.xp, *operands[: self.positional], **keywords)

    def _run_view(self, args: Arguments) -> Any:
        source = args[self.operator.op.view_of]  # type: ignore[index]
        self._check_bounds(source)
        if not self.operator.op.differentiable:
            return Value(source.storage, self.outs[0], source.backend)  # type: ignore[index]
        root = source if source.base is None else source.base
        made = tuple([Value(source.storage, meta, source.backend, root) for meta in self.outs or ()])
        origin = self._origin(source)
        if origin:
            for view in made:
                view.origin = origin
        return made[0] if self.count == 1 else made

    def _one_view(self, place: int, meta: Meta) -> Run:
        """``_run_view`` for one result, with what can be known beforehand."""
        needed = meta.extent * meta.dtype.itemsize

        def run(args: Arguments) -> Value:
            source = args[place]
            storage, base = source.storage, source.base
            if needed > storage.nbytes:
                self._check_bounds(source)
            view: Value = new_value()
            view.storage, view.meta, view.backend = storage, meta, source.backend
            view.autograd = view._array = None
            view.keys, view.seen = source.backend.key | AUTOGRAD, storage.version
            if base is None:
                view.base, view.origin = source, TRACKED
            else:
                view.base, view.origin = base, source.origin
            if context.current.excluded & AUTOGRAD:
                view.origin = UNTRACKED
            return view

        return run

    def _origin(self, source: Value) -> int:
        """What in-place operations must know of how a view was made; views of views inherit it."""
        current = context.current
        if not current.grad_enabled or current.inference:
            return UNTRACKED
        return MULTIPLE if self.count < 0 else TRACKED if source.base is None else source.origin

    def _check_bounds(self, source: Value) -> None:
        """Refuse a view beyond its storage; only ``as_strided`` can ask for one."""
        for meta in self.outs or ():
            itemsize = meta.dtype.itemsize
            if meta.extent * itemsize > source.storage.nbytes:
                raise ShapeError(
                    f"{self.operator.op.public}: sizes {list(meta.shape)}, strides {list(meta.strides)} and "
                    f"offset {meta.offset} need {meta.extent * itemsize} bytes, the storage has {source.storage.nbytes}"
                )

    def _simple_run(self, bound: Arguments) -> Run:
        """A run that fixes the attributes, which are part of what a plan is kept by."""
        function, positional = self.info.function, self.positional
        keywords = dict(zip(self.keyword_names, bound[positional:], strict=True))
        return array_run(function, self.backend, bound[:positional], self.outs or (), self.count == 1, keywords)

    def _run_functional(self, args: Arguments) -> Any:
        if self.outs is None:
            return self._adopt_unknown(self._call(args, None))
        if self.info.wants_out:
            return self._run_into(args)
        result = self._call(args, None)
        if self.count < 0:
            return tuple([self.backend.adopt(a, m) for a, m in zip(result, self.outs, strict=True)])
        return self.backend.adopt(result, self.outs[0])

    def _run_into(self, args: Arguments) -> Any:
        values = tuple([self.backend.empty(meta) for meta in self.outs or ()])
        targets = tuple([self._target(value) for value in values])
        self._call(args, targets[0] if self.count == 1 else targets)
        for value, target in zip(values, targets, strict=True):
            if target is not value.array:
                self.backend.store(value.array, target)
        return values[0] if self.count == 1 else values

    def _target(self, value: Value) -> Any:
        """Where the kernel writes: half precision goes to a float32 array first."""
        if value.meta.dtype in HALVES and not self.info.movement:
            return self.backend.xp.empty(value.meta.shape, np_float32)
        return value.array

    def _adopt_unknown(self, result: Any) -> Any:
        results = result if isinstance(result, tuple) else (result,)
        metas = [_meta_of_array(a, self.backend.device) for a in results]
        values = tuple([self.backend.adopt(a, m) for a, m in zip(results, metas, strict=True)])
        return values if isinstance(result, tuple) else values[0]

    def _run_inplace(self, args: Arguments) -> Any:
        self._write(args, (args[0],))
        return args[0]

    def _run_out_form(self, args: Arguments) -> Any:
        targets = tuple([args[p] for p in self.operator.op.mutates])
        self._write(args, targets)
        return targets if self.count < 0 else targets[0]

    def _write(self, args: Arguments, targets: tuple[Value, ...]) -> None:
        """Compute into existing values; directly where the kernel allows it and memory cannot clash."""
        if self.info.wants_out and len(targets) == 1 and self._is_direct(args, targets[0]):
            self._call(args, targets[0].array)
        else:
            result = self._computed(args)
            for target, array in zip(targets, result, strict=True):
                self.backend.store(target.array, array)
        for target in targets:
            target.storage.version += 1

    def _is_direct(self, args: Arguments, target: Value) -> bool:
        op = self.operator.op
        if self.info.updates:
            return not any(_shares(arg, target) for arg in args[1:])
        if target.meta.dtype in HALVES or not op.promotion or op.output_dtype(metas_of(args)) is not target.meta.dtype:
            return False
        return all(
            arg.storage is not target.storage or arg.meta is target.meta for arg in args if arg.__class__ is Value
        )

    def _computed(self, args: Arguments) -> tuple[Any, ...]:
        """The functional results as temporary arrays."""
        if not self.info.wants_out:
            result = self._call(args, None)
            return result if isinstance(result, tuple) else (result,)
        op = self.operator.op
        bound = metas_of(args)[: len(op.base.params)]
        inferred = op.base.infer(bound)
        metas = inferred if isinstance(inferred, tuple) else (inferred,)
        xp = self.backend.xp
        temporaries = tuple([xp.empty(m.shape, NUMPY_DTYPES[self._working_type(m.dtype)]) for m in metas if m])
        self._call(args, temporaries if len(temporaries) > 1 else temporaries[0])
        return temporaries

    def _run_mutating(self, args: Arguments) -> Any:
        """An operation that only exists in place: its kernel writes into its operands."""
        self._call(args, None)
        targets: list[Value] = []
        for position in self.operator.op.mutates:
            target = args[position]
            targets.extend(target if target.__class__ is tuple else (target,) if target is not None else ())
        for target in targets:
            target.storage.version += 1
        return None if self.outs is None else args[self.operator.op.mutates[0]]


np_float32 = NUMPY_DTYPES[dtypes.float32]


def _meta_of_array(array: Any, device: Device) -> Meta:
    """A new value's meta: the array's own layout, where it is dense."""
    strides = tuple([step // array.itemsize for step in array.strides])
    return Meta.of(array.shape, BY_NUMPY[array.dtype], device, strides if is_dense(array.shape, strides) else None)


def _shares(arg: Any, target: Value) -> bool:
    if arg.__class__ is tuple:
        return any(_shares(a, target) for a in arg)
    return arg.__class__ is Value and arg.storage is target.storage


def _keyword_names(op: Any) -> tuple[str, ...]:
    return tuple(p.name for p in op.base.params[op.base.positional :])


def _wrapped_scalars(op: Any, bound: Arguments) -> dict[int, int]:
    """Python integers beyond the computing type's range, as that type holds them."""
    target = op.compute_dtype(bound) if op.promotion else None
    if target is None or target.category != dtypes.INTEGER:
        return {}
    limits = np.iinfo(target.name)
    span = 1 << (8 * target.itemsize)
    return {
        position: (bound[position] - limits.min) % span + limits.min
        for position in op.promoted
        if type(bound[position]) is int and not limits.min <= bound[position] <= limits.max
    }


def _backend_of(operator: Operator, outs: tuple[Meta, ...] | None, bound: Arguments) -> Backend:
    op = operator.op
    metas = [*(outs or ()), *op.metas_in(bound)]
    device = metas[0].device if outs else next((m.device for m in metas if m.device.type != "cpu"), None)
    if device is None:
        device = next((b for b in bound if isinstance(b, Device)), metas[0].device if metas else CPU)
    backend = context.current.backends.get(device)
    if backend is None:
        known = ", ".join(map(str, context.current.backends)) or "none"
        raise DeviceError(f"{op.public}: device {device} is not available here; there are: {known}")
    return backend


def _kernel_of(operator: Operator, backend: Backend) -> KernelInfo:
    info = operator.kernels.get(backend.key)
    if info is None:
        raise NotSupportedError(f"{operator.op.public}: not available on {backend.device}")
    return info


def _check_targets(name: str, targets: list[Any]) -> None:
    for target in targets:
        for meta in target if isinstance(target, tuple) else (target,):
            if meta is not None and overlaps_itself(meta.shape, meta.strides):
                raise InplaceError(
                    f"{name}: several elements of the written {meta} share memory; clone() the tensor before you write"
                )
