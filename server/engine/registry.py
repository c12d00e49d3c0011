"""Registers implementations of contracts: kernels, factories of prepared kernels, derivatives and composites.

``@implements``, ``@kernel``, ``@prepares`` and ``@composite`` file functions under the contract's ``Op``; derived forms
(in-place, ``out=``) share those of their base. ``check_complete`` refuses to start where something is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_protocol.ops import Op

from . import keys
from .operators import OPERATORS, TOGETHER, Derivative, Factory, Formula, Kernel, KernelInfo, Preparer


def implements(
    contract: Op,
    *,
    movement: bool = False,
    updates: bool = False,
    together: Formula | None = None,
    **formulas: Formula | None,
) -> Callable[[Kernel], Kernel]:
    """File a kernel that is generic over the array library, and the formula of each differentiable input.

    ``together`` gives the gradients of all inputs at once, as a tuple; it serves where several are wanted. What only
    an unwanted gradient's own formula names, it gets as None.
    """

    def file(function: Kernel) -> Kernel:
        operator = OPERATORS[contract.name]
        info = KernelInfo(function, movement, updates)
        operator.kernels[keys.CPU] = operator.kernels[keys.CUDA] = info
        derive(contract, **formulas)
        if together is not None:
            operator.derivatives[TOGETHER] = Derivative(contract, together)
        return function

    return file


def derive(contract: Op, **formulas: Formula | None) -> None:
    """File the formulas of an operation that has no kernel of its own: a view."""
    operator = OPERATORS[contract.name]
    names = [p.name for p in contract.params]
    for name, formula in formulas.items():
        if name not in names:
            raise TypeError(f"derivative of {contract.name}: it has no input {name!r}")
        if formula is not None:
            operator.derivatives[names.index(name)] = Derivative(contract, formula)
    operator.grad_positions = tuple(p for p in operator.grad_positions if formulas.get(names[p], _MISSING) is not None)
    _MENTIONED.setdefault(contract.name, set()).update(formulas)


_MISSING: Any = object()
_MENTIONED: dict[str, set[str]] = {}


def kernel(contract: Op, key: int, *, movement: bool = False) -> Callable[[Kernel], Kernel]:
    """File a tuned kernel for one backend over the generic one."""

    def file(function: Kernel) -> Kernel:
        OPERATORS[contract.name].kernels[key] = KernelInfo(function, movement)
        return function

    return file


def prepares(
    contract: Op, key: int, *, elementwise: bool = False, deferrable: bool = False
) -> Callable[[Factory], Factory]:
    """File a factory of prepared kernels for one backend over all others of the operation.

    It is asked once per plan and returns what runs from then on, or None for operands that it does not take: then the
    factory filed before it is asked, and last of all the generic kernel runs. All operands are on the backend's device.
    Where an operation ``updates`` leaves, floats may change between runs, but for being 0: read the arguments' own.
    ``elementwise``: each element of the result depends on the operands' elements at the same place alone, so that it
    may overwrite them. ``deferrable``: it does nothing on the device but by launches that wait where launches do.
    """

    def file(factory: Factory) -> Factory:
        OPERATORS[contract.name].preparers.setdefault(key, []).insert(0, Preparer(factory, elementwise, deferrable))
        return factory

    return file


def composite(contract: Op) -> Callable[[Kernel], Kernel]:
    """File a function over engine values; it needs no formula."""

    def file(function: Kernel) -> Kernel:
        OPERATORS[contract.name].composite = function
        return function

    return file


def check_complete() -> None:
    """Refuse to start with an operation that nothing implements, or an input whose derivative is not stated."""
    for operator in OPERATORS.values():
        op = operator.op
        if op.base is not op:
            continue
        if not operator.has_implementation:
            raise TypeError(f"operation {op.name} has no implementation")
        if operator.composite or not op.differentiable:
            continue
        silent = [
            op.params[p].name for p in operator.grad_positions if op.params[p].name not in _MENTIONED.get(op.name, ())
        ]
        if silent:
            raise TypeError(f"operation {op.name}: no derivative is stated for {', '.join(silent)}")
