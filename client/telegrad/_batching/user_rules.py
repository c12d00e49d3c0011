"""Rules for batches that programs have, of operators and of functions: they are given whole batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._ops.batching import below
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import OperatorError

from .tensor import BatchedTensor, innermost_of


class VmapInfo(NamedTuple):
    """What a rule is told of the batch."""

    batch_size: int
    randomness: str


def by_rule(rule: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the function ``rule(info, in_dims, *args)`` computes, in the innermost level of the arguments.

    Raises OperatorError where it does not return results and their dimensions.
    """
    number = innermost_of((*args, *kwargs.values()))
    in_dims = tuple([_dim_of(value, number) for value in args])
    with below(number) as level:
        given = [_physical(value, number) for value in args]
        named = {name: _physical(value, number) for name, value in kwargs.items()}
        returned = rule(VmapInfo(level.size, level.randomness), in_dims, *given, **named)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise OperatorError(
            "Expected the vmap staticmethod/function to have two returns, an output and out_dims with pytree structure "
            "compatible with the output."
        )
    return _batched(*returned, number)


def _is_here(value: Any, number: int) -> bool:
    return isinstance(value, BatchedTensor) and value._level == number


def _dim_of(value: Any, number: int) -> Any:
    if isinstance(value, (list, tuple)) and any([isinstance(item, Tensor) for item in value]):
        return type(value)([_dim_of(item, number) for item in value])
    return 0 if _is_here(value, number) else None


def _physical(value: Any, number: int) -> Any:
    if isinstance(value, (list, tuple)) and any([isinstance(item, Tensor) for item in value]):
        return type(value)([_physical(item, number) for item in value])
    return value._physical if _is_here(value, number) else value


def _batched(result: Any, dims: Any, number: int) -> Any:
    if isinstance(result, Tensor):
        dim = dims[0] if isinstance(dims, (list, tuple)) else dims
        return result if dim is None else BatchedTensor(number, result.movedim(dim, 0) if dim else result)
    if isinstance(result, (list, tuple)):
        per_result = dims if isinstance(dims, (list, tuple)) else [dims] * len(result)
        return type(result)([_batched(item, dim, number) for item, dim in zip(result, per_result, strict=True)])
    return result


def element_by_element(run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what an operator without a rule computes: one call for each element of the innermost level's batch."""
    number = innermost_of((*args, *kwargs.values()))
    with below(number) as level:
        lines = [
            run(
                *[_element(value, number, place) for value in args],
                **{name: _element(value, number, place) for name, value in kwargs.items()},
            )
            for place in range(level.size)
        ]
    return _stacked(lines, number)


def _element(value: Any, number: int, place: int) -> Any:
    if isinstance(value, (list, tuple)) and any([isinstance(item, Tensor) for item in value]):
        return type(value)([_element(item, number, place) for item in value])
    return value._physical.select(0, place) if _is_here(value, number) else value


def _stacked(lines: list[Any], number: int) -> Any:
    first = lines[0]
    if isinstance(first, Tensor):
        return BatchedTensor(number, _stack(lines))
    if isinstance(first, (list, tuple)):
        return type(first)([_stacked(list(column), number) for column in zip(*lines, strict=True)])
    return first


def _stack(tensors: list[Tensor]) -> Tensor:
    made: Tensor = function("stack")(tensors)
    return made
