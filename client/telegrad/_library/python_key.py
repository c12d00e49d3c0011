"""The kernel of the Python key: modes and classes with ``__torch_dispatch__`` are asked, or a fake kernel answers."""

from __future__ import annotations

from typing import Any

from telegrad._dispatch.asking import ask, without_innermost
from telegrad._ops.operand_classes import DISPATCHING, overrides
from telegrad._tensor.listed import tensors_in

from . import keys
from .operator_entry import Operator
from .rules import fakes


def answer(overload: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the innermost mode, or the class of an argument, answers to an operator.

    A rule that the program has registered for the mode or class answers in its place. Where it makes fake tensors, the
    operator's fake kernel runs.
    """
    tensors = [*tensors_in((*args, *kwargs.values()))]
    kinds = tuple(dict.fromkeys([tensor.__class__ for tensor in tensors if tensor.__class__ in DISPATCHING]))
    modes = overrides.dispatch_modes
    if modes:
        rule = _rule(operator, type(modes[-1]))
        if rule is not None:
            with without_innermost() as mode:
                return rule(mode, overload, kinds, args, kwargs)
        if hasattr(modes[-1], "_run_function"):
            return fakes.run(operator, fake_kernel(operator), args, kwargs)
        return ask(overload, args, kwargs)
    for kind in kinds:
        rule = _rule(operator, kind)
        if rule is not None:
            return rule(kind, overload, kinds, args, kwargs)
    fake_mode = next((tensor.fake_mode for tensor in tensors if hasattr(tensor, "fake_mode")), None)
    if fake_mode is not None:
        with fake_mode:
            return fakes.run(operator, fake_kernel(operator), args, kwargs)
    return ask(overload, args, kwargs)


def _rule(operator: Operator, kind: type) -> Any:
    rules = operator.dispatch_rules.get(kind)
    return rules[-1] if rules else None


def fake_kernel(operator: Operator) -> Any:
    """Return what tells the metas of an operator's results. Raises OperatorError where nothing does."""
    kernel = operator.kernel_for(keys.DispatchKey.Meta)
    if kernel is not None:
        return kernel.function
    if fakes.has_trivial(operator):
        return lambda *args, **kwargs: fakes.run_trivial(operator, args, kwargs)
    raise fakes.no_fake(operator)
