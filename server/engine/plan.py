"""Plans: how one operation is executed on operands of given metas, worked out once and kept by signature.

A plan holds the results' metas and the function that executes the operation: a view, a prepared kernel, or a generic
kernel with conversions. It is the bottom of every dispatch. Knows nothing of autograd but that it keeps its part here.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from telegrad_protocol.errors import DeviceError, InplaceError, NotSupportedError
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.meta import CPU, Device, Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.targets import ONE_VALUE_EVERYWHERE

from . import context
from .device import work
from .generic_kernels.kernel import GenericKernel, GenericRun, wrapped_scalars
from .integers.noting import noting
from .operators import KernelInfo, Operator, Run, Signature
from .prepared import found_run, prepared_run, spending_run
from .replay.remembered import remember
from .signature import metas_of
from .value import Backend
from .view_plan import view_run

Arguments = tuple[Any, ...]
_RESULT_BYTES = 800
"""What the host holds for a result besides its elements, at least."""
_KEPT_RESULTS = 256
"""Plans of more results are made for each call: kept ones would fill the memory."""
_SMALL_WORK = 1 << 20
"""Temporaries of at most so many bytes are not held against a session's quota."""
_made = 0


def run_backend(operator: Operator, args: Arguments, signature: Signature, key_set: int) -> Any:
    """The boxed kernel of the backend keys: look the plan up, or make it, and run it."""
    plan = operator.plans.get(signature) or plan_of(operator, args, signature)
    return plan.run(args)


def plans_made() -> int:
    """Return how many plans this process has made and kept so far."""
    return _made


def plan_of(operator: Operator, args: Arguments, signature: Signature) -> Plan:
    """The plan of a call: the one that is kept, or a new one."""
    global _made
    plan: Plan | None = operator.plans.get(signature)
    if plan is None:
        plan = Plan(operator, args)
        if plan.outs is None or len(plan.outs) <= _KEPT_RESULTS:
            _made += 1
            remember(operator.plans, signature, plan)
        else:
            context.current.host_memory.check_room(len(plan.outs) * _RESULT_BYTES)
    return plan


class Plan:
    """How one operation is executed on operands of given metas.

    ``outs`` are the results' metas, None where only data can tell them; ``count`` is 1 for a single result, else -1.
    """

    __slots__ = ("count", "gradient_plans", "outs", "recorded", "run")

    def __init__(self, operator: Operator, args: Arguments, numbers: Run | None = None) -> None:
        """Plan a call; with ``numbers`` calls of any floats that vary, which are read in each (``replay.varying``).

        ``numbers`` executes those that must have a plan of their own, and is the run where all must.
        """
        op = operator.op
        bound = metas_of(args)
        inferred = op.infer(bound)
        self.outs: tuple[Meta, ...] | None
        if isinstance(inferred, tuple):
            self.outs, self.count = inferred, -1
        else:
            self.outs, self.count = (inferred,) if inferred else None, 1
        self.gradient_plans: dict[int, Any] = {}
        """What autograd has worked out for these operands, by the bits of those that require a gradient."""
        self.recorded: Run | None = None
        """``run`` with what autograd does for these operands around it."""
        self.run: Run = (
            view_run(op, self.outs, self.count == 1)
            if op.view_of is not None
            else self._kernel_run(operator, bound)
            if numbers is None
            else self._run_of_any_numbers(operator, bound, numbers)
        )

    def _kernel_run(self, operator: Operator, bound: Arguments) -> Run:
        """A prepared kernel where one takes the operands, otherwise the generic one."""
        backend = _backend_of(operator, self.outs, bound)
        with backend.as_current():
            return backend.on_device(self._run_on(backend, operator, bound))

    def _run_of_any_numbers(self, operator: Operator, bound: Arguments, numbers: Run) -> Run:
        backend = _backend_of(operator, self.outs, bound)
        with backend.as_current():
            run = prepared_run(operator, backend, bound, self.outs or (), self.count == 1, numbers, True)
        if run is numbers:
            return numbers
        _check_written(operator.op, bound)
        if self.outs:
            run = spending_run(operator, backend, bound, self.outs, self.count == 1, run, True)
        return backend.on_device(run)

    def _run_on(self, backend: Backend, operator: Operator, bound: Arguments) -> Run:
        op, outs = operator.op, self.outs
        if backend.device is CPU and outs and work.limit < math.inf:
            names = [param.name for param in op.params]
            work.check_work(op.name, dict(zip(names, bound)), outs)
        info, is_single = _kernel_of(operator, backend), self.count == 1
        generic = GenericRun(partial(_generic_run, operator, backend, info, bound, outs, is_single))
        run: Run = generic
        is_prepared = True
        if outs is not None or op.mutates:
            wrapped = wrapped_scalars(op, bound)
            args = tuple([wrapped.get(position, item) for position, item in enumerate(bound)]) if wrapped else bound
            run = prepared_run(operator, backend, args, outs or (), is_single, generic)
        else:
            run = found_run(operator, backend, bound, generic)
        if run is generic:
            run = generic.made()
            is_prepared = False
        if backend.device is CPU:
            run = backend.threaded(run, sum([meta.nbytes for meta in (*op.metas_in(bound), *(outs or ()))]))
        if is_prepared and outs:
            run = spending_run(operator, backend, args, outs, is_single, run)
        _check_written(op, bound)
        if not backend.can_capture:
            return run
        return noting(op, bound, outs, is_single, run)


def _generic_run(
    operator: Operator, backend: Backend, info: KernelInfo, bound: Arguments, outs: tuple[Meta, ...] | None,
    is_single: bool,
) -> Run:  # fmt: skip
    """The run of a generic kernel, which refuses to take more memory for a moment than the session has."""
    generic = GenericKernel(operator, backend, info, bound, outs, is_single)
    run: Run = backend.at_once(generic.run())
    temporary = _unaccounted_bytes(generic, bound)
    return _with_room(backend, temporary, run) if temporary > _SMALL_WORK else run


def _unaccounted_bytes(kernel: GenericKernel, bound: Arguments) -> int:
    """The bytes of the largest operand that repeats elements, or of the largest result that the kernel allocates.

    No value of the session stands for that memory.
    """
    repeating = [m for m in kernel.operator.op.metas_in(bound) if m.numel > m.extent - m.offset]
    allocated = () if kernel.info.wants_out else kernel.outs or ()
    return max([meta.nbytes for meta in (*repeating, *allocated)], default=0)


def _with_room(backend: Backend, nbytes: int, run: Run) -> Run:
    """``run``, which raises OutOfMemoryError first where the session could not hold so many bytes."""

    def checked(args: Arguments) -> Any:
        backend.check_room(nbytes)
        return run(args)

    return checked


def _backend_of(operator: Operator, outs: tuple[Meta, ...] | None, bound: Arguments) -> Backend:
    device = outs[0].device if outs else _device_of(operator, bound)
    backend = context.current.backends.get(device)
    if backend is None:
        available = ", ".join(map(str, context.current.backends)) or "none"
        raise DeviceError(f"{operator.op.public}: device {device} is not available here; there are: {available}")
    return backend


def _device_of(operator: Operator, bound: Arguments) -> Device:
    """Where an operation is executed whose results do not tell."""
    metas = operator.op.metas_in(bound)
    device = next((m.device for m in metas if m.device.type != "cpu"), None)
    return device or next((b for b in bound if isinstance(b, Device)), metas[0].device if metas else CPU)


def _kernel_of(operator: Operator, backend: Backend) -> KernelInfo:
    info = operator.kernels.get(backend.key)
    if info is None:
        raise NotSupportedError(f"{operator.op.public}: not available on {backend.device}")
    return info


def _check_written(op: Op, bound: Arguments) -> None:
    """Refuse targets of which several elements share memory, unless all become the same."""
    if not op.mutates or op.name in ONE_VALUE_EVERYWHERE:
        return
    for target in [bound[p] for p in op.mutates]:
        for meta in target if isinstance(target, tuple) else (target,):
            if meta is not None and overlaps_itself(meta.shape, meta.strides):
                raise InplaceError(
                    f"{op.public}: several elements of the written {meta} share memory; "
                    "clone() the tensor before you write"
                )
