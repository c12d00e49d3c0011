"""Derivatives that programs give operators: the kernel of the Autograd keys, made from ``backward``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._session.thread_modes import thread
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad.autograd.function import Function
from telegrad_protocol.errors import AutogradError

from .. import keys
from ..overloads import OpOverload
from ..plain_calls import PlainCalls, Recorder
from ..state import AutoDispatchBelowAutograd


class Derivative:
    """What a program has given: ``backward(ctx, *grads)``, and ``setup_context(ctx, inputs, output)``, which saves."""

    def __init__(self, backward: Callable[..., Any] | None = None, setup: Callable[..., Any] | None = None) -> None:
        self.backward = backward
        self.setup_context = setup


class _Call(NamedTuple):
    """One call below autograd: what is the same in all that a differentiable function is applied to."""

    of_call: keys.DispatchKeySet
    named: dict[str, Any]
    lengths: list[int | None]
    """For each argument the length of the list that it is; None where it is no list of tensors."""
    results: list[Any]
    """What ``forward`` notes of the results: such lengths, and whether they are a tuple."""


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value)


def _flat(values: Any) -> tuple[list[Any], list[int | None]]:
    lengths = [len(value) if _is_tensor_list(value) else None for value in values]
    flat: list[Any] = []
    for value, length in zip(values, lengths, strict=True):
        flat.extend([value] if length is None else value)
    return flat, lengths


def _nested(flat: Any, lengths: list[int | None]) -> list[Any]:
    nested, place = [], 0
    for length in lengths:
        nested.append(flat[place] if length is None else list(flat[place : place + length]))
        place += 1 if length is None else length
    return nested


def autograd_kernel(
    overload: OpOverload, derivative: Derivative, *, refuses_gradients: bool = False
) -> Callable[..., Any]:
    """Return the kernel, which is given the keys of the call, that records ``derivative`` for an overload.

    One that ``refuses_gradients`` raises AutogradError where a gradient would be recorded.
    """
    schema = overload._schema
    has_named = any(argument.kwarg_only for argument in schema.arguments)

    def below(args: Any, call: _Call) -> Any:
        with AutoDispatchBelowAutograd():
            return overload.redispatch(call.of_call & keys.AFTER_AUTOGRAD, *args, **call.named)

    def forward(ctx: Any, *given: Any) -> Any:
        call: _Call = given[-1]
        args = _nested(given[:-1], call.lengths)
        result = below(args, call)
        if derivative.setup_context is not None:
            inputs, named = schema.filled(args, call.named)
            with AutoDispatchBelowAutograd():
                if has_named:
                    derivative.setup_context(ctx=ctx, inputs=inputs, keyword_only_inputs=named, output=result)
                else:
                    derivative.setup_context(ctx=ctx, inputs=inputs, output=result)
        flat, lengths = _flat(result if isinstance(result, tuple) else (result,))
        ctx._lengths_of_call = call.lengths
        ctx._lengths_of_results = lengths
        call.results[:] = lengths, isinstance(result, tuple)
        return tuple(flat)

    def backward(ctx: Any, *grads: Any) -> Any:
        if derivative.backward is None:
            raise AutogradError(
                f"Trying to backward through {overload} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        lengths, needs = ctx._lengths_of_call, ctx.needs_input_grad
        ctx.needs_input_grad = tuple(_nested(needs[:-1], lengths))
        try:
            results = derivative.backward(ctx, *_nested(grads, ctx._lengths_of_results))
        finally:
            ctx.needs_input_grad = needs
        results = results if isinstance(results, tuple) else (results,)
        return (*_flat_gradients(results, lengths), None)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    generated: Any = type(_name_of(overload), (Function,), members)

    def kernel(of_call: keys.DispatchKeySet, *args: Any, **named: Any) -> Any:
        if not (thread.modes.records and any(t._is_tracked() for t in tensors_in([*args, *named.values()]))):
            return below(args, _Call(of_call, named, [], []))
        if refuses_gradients:
            raise AutogradError(
                f"{overload._opname}(): functions with out=... arguments don't support automatic differentiation, but "
                "one of the arguments requires grad."
            )
        flat, lengths = _flat(args)
        call = _Call(of_call, named, lengths, [])
        results = generated.apply(*flat, call)
        of_results, is_tuple = call.results
        nested = _nested(results, of_results)
        return tuple(nested) if is_tuple else nested[0]

    return kernel


def plain_recorder(overload: OpOverload, derivative: Derivative, plain: PlainCalls) -> Recorder | None:
    """Return what runs plain calls of an overload and records ``derivative``; None where lists are involved."""
    schema = overload._schema
    if any(str(returned.type) != "Tensor" for returned in schema.returns):
        return None
    classes: dict[Callable[..., Any], Any] = {}

    def recorder(args: tuple[Any, ...], function: Callable[..., Any]) -> Any:
        generated = classes.get(function)
        if generated is None:
            generated = classes[function] = _recording(overload, derivative, plain, function)
        return generated.apply(*args)

    return recorder


def _recording(overload: OpOverload, derivative: Derivative, plain: PlainCalls, function: Callable[..., Any]) -> Any:
    """Return the differentiable function of plain calls that ``function`` computes."""
    schema, count = overload._schema, len(overload._schema.arguments)

    def forward(ctx: Any, *args: Any) -> Any:
        def note(result: Any) -> None:
            if derivative.setup_context is not None:
                inputs = args if len(args) == count else schema.filled(args, {})[0]
                derivative.setup_context(ctx=ctx, inputs=inputs, output=result)

        return plain.run_below(function, args, note)

    def backward(ctx: Any, *grads: Any) -> Any:
        differentiate: Any = derivative.backward
        return differentiate(ctx, *grads)

    return type(_name_of(overload), (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def _name_of(overload: OpOverload) -> str:
    return f"GeneratedBackwardFor_{overload.namespace}_{overload._opname}_{overload._overloadname}"


def _flat_gradients(results: tuple[Any, ...], lengths: list[int | None]) -> list[Any]:
    """Return gradients in a row; None for a list stands for None for all that is in it."""
    if len(results) != len(lengths):
        return list(results)
    flat: list[Any] = []
    for result, length in zip(results, lengths, strict=True):
        if length is None:
            flat.append(result)
            continue
        given = [None] * length if result is None else list(result)
        if len(given) != length:
            raise AutogradError(
                "Expected the return from backward to be of the same structure as the inputs. Got: "
                f"{len(given)} gradients (return from backward) for a list of {length} tensors"
            )
        flat.extend(given)
    return flat
