"""Registers implementations of contracts: kernels, factories of prepared kernels, derivatives and composites.

``@implements``, ``@kernel``, ``@prepares``, ``@finds`` and ``@composite`` register functions under the contract's
``Op``; derived forms (in-place, ``out=``) share those of their base. ``check_complete`` refuses to start where
something is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_protocol.ops import Op

from . import keys
from .operators import (
    BY_INDEX,
    OPERATORS,
    TOGETHER,
    Derivative,
    Factory,
    Finder,
    Formula,
    Kernel,
    KernelInfo,
    Preparer,
    Single,
)


def implements(
    contract: Op,
    *,
    movement: bool = False,
    updates: bool = False,
    together: Formula | None = None,
    first: tuple[str, ...] = (),
    **formulas: Formula | None,
) -> Callable[[Kernel], Kernel]:
    """Register a kernel that is generic over the array library, and the formula of each differentiable input.

    ``together`` returns the gradients of all inputs as a tuple; it is used where more than one is wanted. Arguments
    that only the formulas of unwanted gradients name are None then. It is called once for the gradients of the inputs
    named ``first``, and then for the others, where what only the former need is large.
    """

    def register(function: Kernel) -> Kernel:
        operator = OPERATORS[contract.name]
        info = KernelInfo(function, movement, updates)
        operator.kernels[keys.CPU] = operator.kernels[keys.CUDA] = info
        derive(contract, **formulas)
        if together is not None:
            operator.derivatives[TOGETHER] = Derivative(contract, together)
        operator.made_first = frozenset([p for p, param in enumerate(contract.params) if param.name in first])
        return function

    return register


def spending(formula: Formula) -> Formula:
    """Mark the formula of a gradient that is one element-wise operation on the gradient that it is made of.

    That operation takes it as its first operand, and may write its result over it where nothing else needs it.
    """
    formula.spends = True  # type: ignore[attr-defined]
    return formula


def derive(contract: Op, **formulas: Formula | None) -> None:
    """Register the formulas of an operation that has no kernel of its own, such as a view."""
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
    """Register a tuned kernel for one backend, which replaces the generic one there."""

    def register(function: Kernel) -> Kernel:
        OPERATORS[contract.name].kernels[key] = KernelInfo(function, movement)
        return function

    return register


def prepares(
    contract: Op,
    key: int,
    *,
    elementwise: bool = False,
    deferrable: bool = False,
    converts: bool = False,
    reads_numbers: bool = False,
    deferrable_unchecked: bool = False,
) -> Callable[[Factory], Factory]:
    """Register a factory of prepared kernels for one backend, which goes before all that were registered earlier.

    It is called once per plan and returns a launch, or None for operands that it does not support: then the factory
    registered before it is called, and the generic kernel runs if none is left. All operands are on the backend's
    device. Where an operation ``updates`` leaves, floats other than 0 may change between launches, which must read them
    from their arguments. ``elementwise``: an element of the result depends on the operands' elements at the same
    position alone, so that the result may overwrite them. ``deferrable``: the launch uses the device by kernel launches
    alone, which may wait in the launch queue. ``converts``: targets may be of other floating-point types than results,
    which are rounded once. ``reads_numbers``: the factory heeds ``Request.reads_numbers``, and neither the contract nor
    what the factory chooses depends on a float that varies but by its class. ``deferrable_unchecked``: the launch is
    deferrable where no index has to be checked, since the host knows them.
    """

    def register(factory: Factory) -> Factory:
        OPERATORS[contract.name].preparers.setdefault(key, []).insert(
            0, Preparer(factory, elementwise, deferrable, converts, reads_numbers, deferrable_unchecked)
        )
        for operator in BY_INDEX if reads_numbers else ():
            operator.reads_numbers |= key if operator.op.base is contract else 0
        return factory

    return register


def overwrites(contract: Op, key: int) -> Callable[[Factory], Factory]:
    """Register a factory of prepared kernels that read a first operand before they write the first result in its place.

    For operations with several results. It returns None for operands that it does not support. Launches wait as those
    that are ``deferrable`` do.
    """

    def register(factory: Factory) -> Factory:
        OPERATORS[contract.name].overwriters[key] = factory
        return factory

    return register


def finds(contract: Op, key: int) -> Callable[[Finder], Finder]:
    """Register a factory of runs, on one backend, of an operation of whose results only data can tell the shapes.

    It is called once per plan with the generic kernel's run, and returns a function that takes the arguments and
    returns the results as new values, or None for operands that it does not support, which that run is for. A run may
    call other operations.
    """

    def register(factory: Finder) -> Finder:
        OPERATORS[contract.name].finders[key] = factory
        return factory

    return register


def transfers(contract: Op, key: int) -> Callable[[Factory], Factory]:
    """Register a factory of prepared kernels for operands on another device than the result.

    Like one of ``prepares``, it returns None for operands that it does not support.
    """

    def register(factory: Factory) -> Factory:
        OPERATORS[contract.name].transfers[key] = factory
        return factory

    return register


def composite(contract: Op) -> Callable[[Kernel], Kernel]:
    """Register a function over engine values, which needs no formulas."""

    def register(function: Kernel) -> Kernel:
        OPERATORS[contract.name].composite = function
        return function

    return register


def comes_to(contract: Op) -> Callable[[Callable[..., Single | None]], Callable[..., Single | None]]:
    """Register what tells, once for operands of given metas, whether a composite comes to one other operation alone.

    It is called with ``records``, which says whether operands may have a history, and the composite's arguments with
    metas in place of values. Calls of these metas under the same modes run that operation from then on, and not the
    composite: so what is returned must follow from what is given.
    """

    def register(tell: Callable[..., Single | None]) -> Callable[..., Single | None]:
        OPERATORS[contract.name].comes_to = tell
        return tell

    return register


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
