"""The table of operations that take jagged tensors, by their public names, and who looks them up in it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from telegrad._ops.operands.implementations import Table
from telegrad._ops.operands.implementations import run as run
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.ops import PUBLIC

from .tensor import NestedTensor

TABLE: Final = Table()
implements: Final = TABLE.implements


@cache
def is_pointwise(public: str) -> bool:
    """Tell whether an operation computes every element of its result from the elements in the same place."""
    return bool(PUBLIC[public][0].promotion)


def dispatch(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation of which an operand is jagged."""
    if kwargs.get("out", public) is None:
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    implementation = TABLE.get(public)
    if implementation is not None:
        return implementation(*args, **kwargs)
    if is_pointwise(public):
        return TABLE["pointwise"](public, args, kwargs)
    plain = TABLE.get(public.removesuffix("_"))
    if plain is not None and public.endswith("_") and isinstance(args[0], NestedTensor):
        return _written(args[0], plain(*args, **kwargs), public)
    raise NotSupportedError(
        f"{public}: not supported for nested tensors of the jagged layout; use values(), unbind() or to_padded_tensor()"
    )


def _written(target: NestedTensor, result: Any, name: str) -> NestedTensor:
    """Write what the form that is not in place has computed into the values."""
    if not isinstance(result, NestedTensor) or result.shape != target.shape:
        raise ArgumentError(f"{name}: the result does not have the shape {target.shape} of the nested tensor")
    target._values.copy_(result._values)
    return target


def nested_among(operands: Any) -> list[NestedTensor]:
    """Return the nested tensors among operands, and in lists of them."""
    found: list[NestedTensor] = []
    for operand in operands:
        if isinstance(operand, NestedTensor):
            found.append(operand)
        elif isinstance(operand, (list, tuple)):
            found += nested_among(operand)
    return found


def require_nested(name: str, *tensors: Any) -> None:
    """Raise ArgumentError unless all are jagged tensors."""
    if not all(isinstance(tensor, NestedTensor) for tensor in tensors):
        raise ArgumentError(f"{name}(): expected all nested tensors inputs")


def require_dense(name: str, *tensors: Tensor | None) -> None:
    """Raise ArgumentError if one of the tensors, such as a weight, is nested."""
    if nested_among(tensors):
        raise ArgumentError(f"{name}(): the weights of a nested tensor must be ordinary tensors")


def require_packed(name: str, *tensors: NestedTensor) -> None:
    """Raise ArgumentError for tensors with gaps, or whose ragged dimension is not the one behind the batch."""
    for tensor in tensors:
        if tensor._ragged.lengths is not None or tensor._dim != 1:
            raise ArgumentError(
                f"{name}(): expected a contiguous jagged layout NestedTensor, without gaps and with its ragged "
                f"dimension behind that of the batch, not one of shape {tensor.shape}"
            )
