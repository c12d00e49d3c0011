"""What a custom operator may return: tensors of their own, which share no memory with arguments and with each other."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from telegrad._ops.sharing import memory_of
from telegrad._tensor.listed import tensors_in
from telegrad_protocol.errors import OperatorError


def check_separate(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, function: Any) -> None:
    """Raise OperatorError where a result is an argument, a view of one, or shares its memory with another result."""
    taken = {memory_of(tensor) for tensor in tensors_in([*args, *kwargs.values()])}
    for tensor in tensors_in(result if isinstance(result, tuple) else (result,)):
        memory = memory_of(tensor)
        if memory in taken:
            raise OperatorError(
                f"{name} (with implementation in {inspect.getmodule(function)}): The output of this custom operator "
                "(1) must not also be an input to this custom operator and (2) may not alias any inputs to this custom "
                "operator or other returns. The most common way to trigger this error is if we have y = custom_op(x) "
                "and y and x are the same Tensor. Please instead return a clone of the offending output tensor(s) "
                "(e.g. return x.clone()) or refactor the custom operator to not return y."
            )
        taken.add(memory)


def check_inplace(name: str, args: tuple[Any, ...], result: Any, function: Callable[..., Any]) -> None:
    """Raise OperatorError where an operator that is marked as in-place does not return its first argument."""
    if result is not args[0]:
        raise OperatorError(
            f"{name} (with implementation in {inspect.getmodule(function)}): An operator tagged with torch.Tag.inplace "
            "must return its first argument."
        )


def check_out(name: str, outs: list[Any], result: Any, function: Callable[..., Any]) -> None:
    """Raise OperatorError where an operator with ``out`` arguments does not return these."""
    results = [result] if len(outs) == 1 else list(result) if isinstance(result, tuple) else []
    if len(results) != len(outs) or any(given is not out for given, out in zip(results, outs, strict=True)):
        raise OperatorError(
            f"{name} (with implementation in {inspect.getmodule(function)}): An operator tagged with torch.Tag.out "
            "must return its mutable keyword-only arguments."
        )
