"""Steps of ``autograd.functional``, under names that programs which differentiate by themselves import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """Take results out of the tuples that were put around them: of both levels, where ``to_unpack`` says so of both."""
    outer, inner = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    results = res if inner else tuple([part[0] for part in res])
    return results if outer else results[0]


def _grad_preprocess(inputs: Sequence[Tensor], create_graph: bool, need_graph: bool) -> tuple[Tensor, ...]:
    """Return inputs to differentiate by: with ``create_graph`` such as lead back to the given ones."""
    return tuple([
        value.view_as(value) if create_graph and value.requires_grad else value.detach().requires_grad_(need_graph)
        for value in inputs
    ])  # fmt: skip


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Return tensors, or tuples of them, without their history unless ``create_graph`` asks for it."""
    if not isinstance(inputs[0], Tensor):
        return tuple([_grad_postprocess(part, create_graph) for part in inputs])
    return inputs if create_graph else tuple([part.detach() for part in inputs])


def _construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """Return for each tensor its columns of the identity of as many rows as all of them have elements."""
    rows, ends = sum(tensor_numels), [sum(tensor_numels[: place + 1]) for place in range(len(tensor_numels))]
    return tuple([
        function("eye")(rows, dtype=tensor.dtype, device=tensor.device)[:, end - count : end]
        for tensor, count, end in zip(tensors, tensor_numels, ends, strict=True)
    ])  # fmt: skip
