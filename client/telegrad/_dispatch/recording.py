"""Differentiates what modes and classes answer: by programs of operations, which they answer in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._ops.duals import DualTensor, duals
from telegrad._ops.grad_names import grad_name
from telegrad._ops.operand_classes import without_modes
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd._functions.tangents import apply_to_duals
from telegrad.autograd.function import Function
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from . import programs
from .asking import without_dispatch
from .programs import Program

Invoke = Callable[[Op, tuple[Any, ...]], Any]
"""Runs an operation on bound arguments."""


class Record:
    """A call whose gradients a program computes: the operation, its arguments, and what the program takes.

    ``invoke`` runs the operations of the program. ``is_part`` tells that it is a part of a call with wrappers.
    """

    result_metas: list[Meta | None]
    whole: Program

    def __init__(self, op: Op, bound: tuple[Any, ...], invoke: Invoke, is_part: bool) -> None:
        self.op = op
        self.invoke = invoke
        self.is_part = is_part
        self.template, tensors = programs.template_of(bound)
        self.tensors: Sequence[Any] = tensors
        self.metas = [tensor._meta for tensor in tensors]
        self.needed = sum([_is_needed(bound[p]) << p for p in op.tensor_positions if p not in op.no_grad])

    def prepare(self) -> None:
        """Ask for the program; raises NotSupportedError where elements decide what it is."""
        self.result_metas = _result_metas(self)
        self.whole = self.program(tuple([meta is not None for meta in self.result_metas]))

    def filled(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments with these tensors in place."""
        return programs.filled(self.template, tensors)  # type: ignore[no-any-return]

    def program(self, reached: tuple[bool, ...]) -> Program:
        """Return the program of the gradients, given which results have one."""
        return programs.derivative(self.op, self.template, self.metas, self.needed, reached)

    def by_operand(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients by the numbers of operands; None where there is none."""
        found: list[Any] = [None] * len(self.tensors)
        rest = iter(gradients)
        for position in self.op.tensor_positions:
            value = self.template[position]
            for item in value if value.__class__ is tuple else (value,):
                gradient = next(rest)
                if item.__class__ is programs.Operand and gradient is not None:
                    found[item.number] = gradient
        return found


def _is_needed(value: Any) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return any([isinstance(item, Tensor) and item._is_tracked() for item in items])


class Dispatched(Function):
    """An operation that a mode or a class answers. Its derivative is a program."""

    _has_no_jvp = False

    @staticmethod
    def forward(ctx: Any, record: Record, compute: Any, *tensors: Tensor) -> Any:
        op = record.op
        outs_of = op.mutates[:1] if op.form == "inplace" else ()
        written = [tensors[record.template[p].number] for p in outs_of]
        metas, program = record.result_metas, record.whole
        ctx.keeps_operands = record.is_part
        saved = {number: tensors[number] for number in program.takes if number < len(tensors)}
        for number, tensor in saved.items():
            if any(tensor is target for target in written):
                with without_dispatch(), without_modes(), enable_grad():  # the copy has the history of what it copies
                    saved[number] = tensor.clone()
        result = compute(op, record.filled(tensors))
        outs = list(result) if isinstance(result, (tuple, list)) else [result]
        first = len(tensors)
        saved.update({first + n: out for n, out in enumerate(outs) if first + n in program.takes})
        ctx.record, ctx.program, ctx.numbers, ctx.metas = record, program, list(saved), metas
        ctx.save_for_backward(*saved.values())
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(*written)
        ctx.mark_non_differentiable(*[out for n, out in enumerate(outs) if n < len(metas) and metas[n] is None])
        record.tensors = list(record.metas)  # only what the program takes is kept
        return tuple(outs) if isinstance(result, (tuple, list)) else result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        record = ctx.record
        values: dict[int, Any] = dict(zip(ctx.numbers, ctx.saved_tensors, strict=True))
        reached = tuple([meta is not None and g is not None for meta, g in zip(ctx.metas, gradients, strict=True)])
        program = ctx.program
        if reached != tuple([meta is not None for meta in ctx.metas]):
            program = record.program(reached)
        given = [gradient for gradient, is_reached in zip(gradients, reached, strict=True) if is_reached]
        first = len(record.metas) + len(ctx.metas)
        values.update(zip(range(first, first + len(given)), given, strict=True))
        results = programs.run(program, values, record.invoke)
        return (None, None, *record.by_operand(results))


def _result_metas(record: Record) -> list[Meta | None]:
    """Return the metas of the results that have a gradient, None for the others."""
    op = record.op
    inferred = op.infer(record.filled(record.metas))
    metas = list(inferred) if isinstance(inferred, tuple) else [inferred]
    return [
        meta if meta is not None and meta.dtype.is_differentiable and number not in op.constants else None
        for number, meta in enumerate(metas)
    ]


def recorded(record: Record, compute: Invoke) -> Any:
    """Compute an operation by ``compute(op, bound)`` and record its derivative."""
    name = grad_name(record.op, tuple(record.filled(record.metas)))
    args = (record, compute, *record.tensors)
    if duals.intercepts and any([isinstance(tensor, DualTensor) for tensor in record.tensors]):
        return apply_to_duals(_Named(name), False, True, args, {})
    return Dispatched._applied(args, {}, name)[0]


class _Named:
    """``Dispatched`` with the name that its node has."""

    _has_no_jvp = Dispatched._has_no_jvp

    def __init__(self, name: str) -> None:
        self._name = name

    def _applied(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Dispatched._applied(args, kwargs, self._name)
