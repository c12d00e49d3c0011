"""Rules for batches that programs give operators, under ``vmap``.

``vmap`` calls its function for one element of the batch after another. A rule is therefore given batches of one:
tensors with a first dimension of size 1, and what all elements share as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._ops.batching import left
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import OperatorError


class VmapInfo(NamedTuple):
    """What a rule is told of the batch."""

    batch_size: int
    randomness: str


def run(rule: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a rule computes for one element of the batch."""
    assert rule is not None
    with left() as level:

        def dim_of(value: Any) -> Any:
            if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
                return type(value)([dim_of(item) for item in value])
            return 0 if isinstance(value, Tensor) and id(value) not in level.shared else None

        in_dims = tuple([dim_of(value) for value in args])
        batched = [_unsqueezed(value, dim) for value, dim in zip(args, in_dims, strict=True)]
        given = rule(VmapInfo(1, level.randomness), in_dims, *batched, **kwargs)
        if not isinstance(given, tuple) or len(given) != 2:
            raise OperatorError(
                "Expected the vmap staticmethod/function to have two returns, an output and out_dims with pytree "
                "structure compatible with the output."
            )
        return _squeezed(*given)


def _unsqueezed(value: Any, dim: Any) -> Any:
    if isinstance(dim, (list, tuple)):
        return type(value)([_unsqueezed(item, inner) for item, inner in zip(value, dim, strict=True)])
    return value if dim is None else value.unsqueeze(dim)


def _squeezed(result: Any, dims: Any) -> Any:
    if isinstance(result, Tensor):
        return result if dims is None else result.squeeze(dims if isinstance(dims, int) else dims[0])
    if isinstance(result, (list, tuple)):
        each = dims if isinstance(dims, (list, tuple)) else [dims] * len(result)
        return type(result)([_squeezed(item, dim) for item, dim in zip(result, each, strict=True)])
    return result
