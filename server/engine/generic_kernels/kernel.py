"""Runs of generic kernels: functions of arrays of NumPy or CuPy, with what their operands and results need around them.

Operands are moved to the device, cast to the type that the operation computes in, and half precision goes through
float32; results are written into new values, into existing ones, or adopted from the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from server.engine import context
from server.engine.array_library.dtypes import BY_NUMPY, COMPUTED_IN, NUMPY_DTYPES
from server.engine.in_c import small as small_in_c
from server.engine.operators import KernelInfo, Operator, Request, Run
from server.engine.signature import metas_of
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import is_dense
from telegrad_protocol.meta import CPU, Device, Meta
from telegrad_protocol.ops import Op

from .direct_runs import KernelCall, call_of, in_place, into_new, mutating

Arguments = tuple[Any, ...]
_array_of = attrgetter("array")


class GenericRun:
    """The run of a plan by a generic kernel, which is made when it is needed: most plans have a prepared kernel."""

    __slots__ = ("_make", "_run")

    def __init__(self, make: Callable[[], Run]) -> None:
        self._make: Callable[[], Run] | None = make
        self._run: Run | None = None

    def made(self) -> Run:
        """Return the run itself."""
        if self._make is not None:
            self._run, self._make = self._make(), None
        return self._run  # type: ignore[return-value]

    def __call__(self, args: Arguments) -> Any:
        return self.made()(args)


class GenericKernel:
    """One kernel on operands of given metas.

    ``bound`` are the arguments, values replaced by their metas; ``outs`` the results' metas, None where only data can
    tell them.
    """

    __slots__ = (
        "_bound",
        "backend",
        "casts",
        "computes_half",
        "info",
        "is_single",
        "keyword_names",
        "lists_as_they_are",
        "operator",
        "outs",
        "positional",
        "wrapped",
    )  # fmt: skip

    def __init__(
        self,
        operator: Operator,
        backend: Backend,
        info: KernelInfo,
        bound: Arguments,
        outs: tuple[Meta, ...] | None,
        is_single: bool,
    ) -> None:
        base = operator.op.base
        self.operator = operator
        self.backend = backend
        self.info = info
        self.outs = outs
        self.is_single = is_single
        self.positional = base.positional
        self.keyword_names = tuple(p.name for p in base.params[base.positional :])
        self._bound = bound
        self.casts = self._plan_casts(bound)
        """The types that operands are cast to, by position."""
        self.lists_as_they_are = frozenset(
            [p for p, item in enumerate(bound) if p not in self.casts and self._is_on_device(item)]
        )
        """Positions of lists of tensors that need no conversion."""
        self.wrapped = wrapped_scalars(operator.op, bound)
        self.computes_half = any(m.dtype in COMPUTED_IN for m in outs or ()) and not info.movement

    def run(self) -> Run:
        """The function that executes the operation."""
        form, direct = self.operator.op.form, self._direct_call()
        if form == "inplace":
            run = self._direct_inplace(direct) if direct else self._run_inplace
            return self._small_inplace(run) or run
        if form == "out":
            return self._run_out_form
        if self.operator.op.mutates:
            mutates, has_result = self.operator.op.mutates, self.outs is not None
            return mutating(direct, mutates, has_result, self._run_mutating) if direct else self._run_mutating
        if direct is None or self.outs is None or not self.info.wants_out:
            return self._run_functional
        return into_new(direct, self.backend, self.outs, self.is_single, self.computes_half)

    def _direct_call(self) -> KernelCall | None:
        """What calls the kernel where all that its operands need is known; None where it is looked at in each call."""
        bound = tuple([self.wrapped.get(position, item) for position, item in enumerate(self._bound)])
        base = bound[: len(self.operator.op.base.params)]
        return call_of(self.info, self.backend, self.keyword_names, base, self.casts)

    def _direct_inplace(self, kernel: KernelCall) -> Run:
        info, op, target = self.info, self.operator.op, self._bound[0]
        is_direct = info.wants_out and (
            info.updates or (op.promotion and self._may_hold_result(target, op.output_dtype(self._bound)))
        )
        if not is_direct:
            return self._run_inplace
        return in_place(kernel, self.backend, self._bound, info.updates, self._run_inplace)

    def _small_inplace(self, otherwise: Run) -> Run | None:
        """The run of a loop over few elements of the host; None where there is none for these operands."""
        op, base = self.operator.op, self.operator.op.base
        factory = small_in_c.FACTORIES.get(base.name)
        if factory is None or self.backend.device is not CPU or not small_in_c.is_there():
            return None
        bound = tuple([self.wrapped.get(position, item) for position, item in enumerate(self._bound)])
        target, result = bound[0], base.infer(self._bound)
        if not isinstance(result, Meta) or (result.shape, result.dtype) != (target.shape, target.dtype):
            return None
        compute = op.compute_dtype(bound) if op.promotion else None
        loop = factory(Request(base, self.backend, bound, (target,), compute, is_in_place=True))
        return None if loop is None else small_in_c.run_in_place(loop, otherwise)

    def _may_hold_result(self, target: Meta, dtype: DType | None) -> bool:
        """Whether results of a type can be computed in the memory of a target."""
        return target.dtype not in COMPUTED_IN and dtype is target.dtype

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

    def _is_on_device(self, item: Any) -> bool:
        """Whether this is a list of tensors that are all on the kernel's device."""
        return item.__class__ is tuple and all(isinstance(m, Meta) and m.device is self.backend.device for m in item)

    def _working_type(self, dtype: DType) -> DType:
        return dtype if self.info.movement else COMPUTED_IN.get(dtype, dtype)

    def _operand(self, position: int, arg: Any) -> Any:
        """An argument as the kernel takes it: an array, moved to the device and cast."""
        if arg.__class__ is Value:
            array = arg.array if arg.backend is self.backend else self.backend.array_from(arg)
            wanted = self.casts.get(position)
            return array if wanted is None else array.astype(NUMPY_DTYPES[wanted])
        if arg.__class__ is tuple:
            if position in self.lists_as_they_are:
                return tuple(map(_array_of, arg))
            return tuple([self._operand(position, item) for item in arg])
        return self.wrapped.get(position, arg) if self.wrapped else arg

    def _call(self, args: Arguments, out: Any) -> Any:
        base_args = args[: len(self.operator.op.base.params)]
        operands = [self._operand(position, arg) for position, arg in enumerate(base_args)]
        keywords = dict(zip(self.keyword_names, operands[self.positional :], strict=True))
        info = self.info
        if info.wants_out:
            keywords["out"] = out
        if info.wants_generator:
            keywords["generator"] = context.current.generators[self.backend.device]
        if info.wants_meta:
            keywords["meta"] = (self.outs[0] if self.outs else None) if self.is_single else self.outs
        return info.function(self.backend.xp, *operands[: self.positional], **keywords)

    def _run_functional(self, args: Arguments) -> Any:
        if self.outs is None:
            return self._adopt_unknown(self._call(args, None))
        if self.info.wants_out:
            return self._run_into_new(args)
        result = self._call(args, None)
        if self.is_single:
            return self.backend.adopt(result, self.outs[0])
        return tuple([self.backend.adopt(array, meta) for array, meta in zip(result, self.outs, strict=True)])

    def _run_into_new(self, args: Arguments) -> Any:
        values = tuple([self.backend.empty(meta) for meta in self.outs or ()])
        targets = tuple([self._target(value) for value in values])
        self._call(args, targets[0] if self.is_single else targets)
        for value, target in zip(values, targets, strict=True):
            if target is not value.array:
                self.backend.store(value.array, target)
        return values[0] if self.is_single else values

    def _target(self, value: Value) -> Any:
        """Where the kernel writes: half precision goes to an array of single precision first."""
        wide = COMPUTED_IN.get(value.meta.dtype)
        if wide is not None and not self.info.movement:
            return self.backend.xp.empty(value.meta.shape, NUMPY_DTYPES[wide])
        return value.array

    def _adopt_unknown(self, result: Any) -> Any:
        """Values of results whose shapes only data could tell."""
        arrays = result if isinstance(result, tuple) else (result,)
        backend = self.backend
        values = tuple([backend.adopt(array, _meta_of_array(array, backend.device)) for array in arrays])
        return values if isinstance(result, tuple) else values[0]

    def _run_inplace(self, args: Arguments) -> Any:
        self._write(args, (args[0],))
        return args[0]

    def _run_out_form(self, args: Arguments) -> Any:
        targets = tuple([args[p] for p in self.operator.op.mutates])
        self._write(args, targets)
        return targets[0] if self.is_single else targets

    def _write(self, args: Arguments, targets: tuple[Value, ...]) -> None:
        """Compute into existing values; directly where the kernel allows it and memory cannot clash."""
        if self.info.wants_out and len(targets) == 1 and self._is_direct(args, targets[0]):
            self._call(args, targets[0].array)
        else:
            results = self._temporary_results(args)
            for target, array in zip(targets, results, strict=True):
                self.backend.store(target.array, array)
        for target in targets:
            target.storage.version += 1

    def _is_direct(self, args: Arguments, target: Value) -> bool:
        op = self.operator.op
        if self.info.updates:
            return not any(_shares_storage(arg, target) for arg in args[1:])
        if not op.promotion or not self._may_hold_result(target.meta, op.output_dtype(metas_of(args))):
            return False
        return all(
            arg.storage is not target.storage or arg.meta is target.meta for arg in args if arg.__class__ is Value
        )

    def _temporary_results(self, args: Arguments) -> tuple[Any, ...]:
        """The results of the functional form, as temporary arrays."""
        if not self.info.wants_out:
            result = self._call(args, None)
            return result if isinstance(result, tuple) else (result,)
        op = self.operator.op
        inferred = op.base.infer(metas_of(args)[: len(op.base.params)])
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


def _meta_of_array(array: Any, device: Device) -> Meta:
    """A new value's meta: the array's own layout where it is dense, otherwise row-major."""
    strides = tuple([step // array.itemsize for step in array.strides])
    return Meta.of(array.shape, BY_NUMPY[array.dtype], device, strides if is_dense(array.shape, strides) else None)


def _shares_storage(arg: Any, target: Value) -> bool:
    if arg.__class__ is tuple:
        return any(_shares_storage(item, target) for item in arg)
    return arg.__class__ is Value and arg.storage is target.storage


def wrapped_scalars(op: Op, bound: Arguments) -> dict[int, int]:
    """Python integers beyond the computing type's range, wrapped around as that type holds them, by position."""
    numbers = [position for position in op.promoted if type(bound[position]) is int] if op.promotion else []
    target = op.compute_dtype(bound) if numbers else None
    if target is None or target.category != dtypes.INTEGER:
        return {}
    limits = np.iinfo(target.name)
    span = 1 << (8 * target.itemsize)
    return {
        position: (bound[position] - limits.min) % span + limits.min
        for position in numbers
        if not limits.min <= bound[position] <= limits.max
    }
