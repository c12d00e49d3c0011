"""Answers operations where a mode or a class stands below autograd; enters itself as who is asked there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from telegrad import return_types
from telegrad._ops.call import call
from telegrad._ops.call_pattern import CallPattern
from telegrad._ops.duals import DualTensor, duals
from telegrad._ops.functions import function
from telegrad._ops.operand_classes import _Overrides, overrides
from telegrad._session.thread_modes import thread
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.autocast import recast
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError
from telegrad_protocol.ops import PUBLIC, TABLE, Op

from . import aten_backwards as _aten_backwards  # it enters functions behind operators
from . import programs
from .asking import ask, is_asked, without_dispatch
from .aten_calls import aten_call, function_call
from .lowerings import KEPT, LOWERINGS
from .recording import Record, recorded

_LISTED: Final = "tuple[Meta, ...]"
"""What the rule of an operation returns that has as many results as its operands say, be it one."""
_TRANSPOSE, _MATRIX_TRANSPOSE = TABLE["transpose"], TABLE["t"]


def handle(public: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_part: bool = False) -> Any:
    """Run a function of an operation some of whose operators a mode or a class answers.

    ``is_part`` tells that it is a part of one with wrappers among its operands: their gradients may flow into all of
    it, so that all of it is differentiated here.
    """
    return _named(public, _handled(public, args, kwargs, is_part))


def _named(public: str, result: Any) -> Any:
    """Return results that were computed one by one, such as values and indices, as users know them by their names."""
    if (
        type(result) is tuple
        and public in return_types.TYPES
        and any([len(op.returns) == len(result) for op in PUBLIC.get(public, ())])
    ):
        return return_types.TYPES[public]._make(result)
    return result


def _handled(public: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_part: bool) -> Any:
    runs_functions = _function_runner(args, kwargs) if public in PUBLIC else None
    if runs_functions is not None:
        return runs_functions(public, args, kwargs)
    lowering = LOWERINGS.get(public)
    if lowering is not None and "out" not in kwargs:
        result = lowering(_runner(is_part or _has_wrapper(args)), *args, **kwargs)
        if result is not NotImplemented:
            return result
    bound = _bound(public, args, kwargs)
    if bound is None and public in PUBLIC and thread.modes.records and _has_tracked((*args, *kwargs.values())):
        with without_dispatch():
            return function(public)(*args, **kwargs)
    if bound is None:
        return _result_of(*function_call(public, args, kwargs))
    return run(*bound, is_part)


def _runner(is_part: bool) -> Callable[..., Any]:
    return lambda public, *args: handle(public, args, {}, is_part)


def _has_tracked(values: Any) -> bool:
    """Whether operands that the server knows require a gradient."""
    tensors = list(tensors_in(values))
    return not _has_wrapper(tensors) and any(tensor._is_tracked() for tensor in tensors)


def _has_wrapper(values: Any) -> bool:
    return any(tensor._session.holds_gradients for tensor in tensors_in(values))


def _function_runner(args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what runs functions whole: the innermost mode, or the class of an operand, if it does so."""
    if overrides.dispatch_modes:
        return getattr(overrides.dispatch_modes[-1], "_run_function", None)
    runners = [getattr(tensor, "_run_function", None) for tensor in tensors_in((*args, *kwargs.values()))]
    return next((runner for runner in runners if runner is not None), None)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _bound(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...]] | None:
    """Return the operation that takes these arguments, and the arguments as it has them; None if there is none."""
    has_out = kwargs.get("out") is not None
    named = {name: value for name, value in kwargs.items() if name != "out"}
    if has_out:
        out = kwargs["out"]
        targets = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for op in PUBLIC.get(public, ()):
        if (op.form == "out") is not has_out:
            continue
        if has_out:
            if len(op.mutates) != len(targets):
                continue
            named |= {op.params[p].name: target for p, target in zip(op.mutates, targets, strict=True)}
        try:
            return op, op.normalize(op.bind(args, named), _is_tensor)
        except ArgumentTypeError:
            continue
    return None


def run(op: Op, bound: tuple[Any, ...], is_part: bool = False) -> Any:
    """Run an operation on bound arguments of which a mode or a class is asked, and record it if gradients are."""
    if thread.modes.autocast is not None:
        return _under_autocast(op, bound, is_part)
    is_needed = op.differentiable and _records(bound) and _needs_gradient(op, bound)
    if op.data_dependent:
        return _unseen(op, bound) if is_needed else _computed(op, bound)
    if op.base.index in programs.composites() and (is_needed or op.base.public not in KEPT) and op.form == "functional":
        return _taken_apart(op, bound, is_part)
    if not is_needed or op.form == "out":
        return _computed(op, bound)
    if _becomes_fake(bound):
        return _with_gradients(_computed(op, bound))
    record = Record(op, bound, invoke, is_part)
    try:
        record.prepare()
    except NotSupportedError:
        return _unseen(op, bound)
    return recorded(record, _computed)


def _becomes_fake(bound: tuple[Any, ...]) -> bool:
    """Whether a mode below the innermost one makes fake tensors of operands, whose history it does not take over."""
    fakes = [mode for mode in overrides.dispatch_modes[:-1] if hasattr(mode, "fakes")]
    return any([mode.fakes(tensor) for mode in fakes for tensor in tensors_in(bound)])


def _with_gradients(result: Any) -> Any:
    for tensor in tensors_in((result,)):
        if tensor.dtype.is_differentiable:
            tensor.requires_grad_()
    return result


def _records(bound: tuple[Any, ...]) -> bool:
    """Whether a graph is recorded: dual numbers have one whatever the modes say, which their tangents follow from."""
    return thread.modes.records or (
        duals.intercepts and any([isinstance(tensor, DualTensor) for tensor in tensors_in(bound)])
    )


def _needs_gradient(op: Op, bound: tuple[Any, ...]) -> bool:
    operands = [bound[position] for position in op.tensor_positions if position not in op.no_grad]
    return any([tensor._is_tracked() for tensor in tensors_in(operands)])


def _under_autocast(op: Op, bound: tuple[Any, ...], is_part: bool) -> Any:
    """Cast the operands as autocast does, and run the operation without it."""
    modes = thread.modes
    template, tensors = programs.template_of(bound)
    metas = programs.filled(template, [tensor._meta for tensor in tensors])
    called, casted = recast(op, metas, modes.autocast)  # type: ignore[arg-type]
    thread.modes = modes.but(autocast=None)
    try:
        return run(called, _cast(bound, casted), is_part)
    finally:
        thread.modes = modes


def _cast(given: Any, metas: Any) -> Any:
    if isinstance(given, Tensor):
        return given if given.dtype is metas.dtype else given.to(metas.dtype)
    if given.__class__ is tuple and metas.__class__ is tuple:
        return tuple([_cast(item, meta) for item, meta in zip(given, metas, strict=True)])
    return metas


def _taken_apart(op: Op, bound: tuple[Any, ...], is_part: bool) -> Any:
    template, tensors = programs.template_of(bound)
    try:
        tracked = [thread.modes.records and tensor._is_tracked() for tensor in tensors]
        program = programs.expansion(op, template, [tensor._meta for tensor in tensors], tracked)
    except NotSupportedError:
        return _unseen(op, bound)
    is_part = is_part or _has_wrapper(tensors)
    results = programs.run(program, dict(enumerate(tensors)), partial(run_lowered, is_part=True) if is_part else invoke)
    if len(results) == 1 and not op.returns and op.rule.__annotations__.get("return") != _LISTED:
        return results[0]
    return tuple(results)


def _unseen(op: Op, bound: tuple[Any, ...]) -> Any:
    """Run an operation that reads elements to tell what it consists of: modes do not see it, classes cannot have it."""
    if any(tensor._session.holds_gradients for tensor in tensors_in(bound)):
        raise NotSupportedError(f"{op.public}: it consists of other operations that depend on elements")
    with without_dispatch():
        return invoke(op, bound)


def _computed(op: Op, bound: tuple[Any, ...]) -> Any:
    """Ask for an operation's operator, and return its results as the operation has them."""
    return _result_of(*aten_call(op, bound))


def _result_of(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = ask(overload, args, kwargs)
    if overload._opname == "convolution_backward" and isinstance(result, (tuple, list)):
        return next((part for part in result if part is not None), None)
    return tuple(result) if isinstance(result, list) else result


def invoke(op: Op, bound: tuple[Any, ...]) -> Any:
    """Run one operation of a program: a mode or a class is asked where there is one."""
    if op is _TRANSPOSE and bound[0].ndim == 2 and {bound[1] % 2, bound[2] % 2} == {0, 1}:
        op, bound = _MATRIX_TRANSPOSE, bound[:1]  # as PyTorch's formulas have it
    if is_asked(bound) and not overrides.modes and _function_runner(bound, {}) is None:
        return run_lowered(op, bound)
    positional = bound[: op.positional]
    named = {param.name: value for param, value in list(zip(op.params, bound, strict=True))[op.positional :]}
    if is_asked(bound):
        return function(op.public)(*positional, **named)
    return call(CallPattern.of(op, positional, named), (*positional, *named.values()))


def run_lowered(op: Op, bound: tuple[Any, ...], is_part: bool = False) -> Any:
    """Run an operation in the terms in which PyTorch asks for it."""
    lowering = LOWERINGS.get(op.public) if op.form == "functional" else None
    if lowering is not None:
        named = {param.name: value for param, value in zip(op.params, bound, strict=True)}
        runner = _runner(is_part or _has_wrapper(bound))
        result = lowering(runner, *bound) if op.varargs_at >= 0 else lowering(runner, **named)
        if result is not NotImplemented:
            return result
    return run(op, bound, is_part)


_ = _aten_backwards
_Overrides.dispatch_handler = staticmethod(handle)
