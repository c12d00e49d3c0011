"""Jacobians taken forwards: one product with a tangent for each element of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad._ops.duals import duals
from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor

from ._batched_passes import in_level
from ._levels import Level, entered_level
from ._products import released, zeros_like

Call = Callable[[list[Tensor]], tuple[Sequence[Tensor], Any]]
"""Calls a function with these inputs; returns its results, and anything else."""


def forward_jacobian(call: Call, inputs: Sequence[Tensor]) -> tuple[Any, list[list[Tensor]]]:
    """Return what ``call`` returns second, and for each result and input a tensor of the shapes of both.

    The function is called once, or also once for each element where it applies functions with a ``jvp`` of their own.
    """
    with entered_level(is_transform=True) as level:
        outputs, rest = call([level.dual(tensor, tensor) for tensor in inputs])
        with _recorded(bool(duals.levels[:-1])):
            columns = None if level.has_rules else _all_columns(level, outputs, inputs)
        shapes = [tuple(output.shape) for output in outputs]
    if columns is None:
        called = [_called_with(call, inputs, steps) for steps in _steps(inputs)]
        columns = [_stacked(list(column)) for column in zip(*called, strict=True)] or [None] * len(outputs)
    with _recorded(bool(duals.levels)):
        blocks = [_blocks(columns[place], shape, outputs[place], inputs) for place, shape in enumerate(shapes)]
    return rest, blocks


def _recorded(is_inner: bool) -> AbstractContextManager[object]:
    """Return a block that records where tangents of outer levels follow from the history, whatever the program says."""
    return enable_grad() if is_inner else nullcontext()


def _stacked(products: list[Tensor]) -> Tensor:
    stacked: Tensor = function("stack")(products)
    return stacked


def _all_columns(level: Level, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return for each result the products with a tangent for each element of the inputs, as one batch."""
    sizes = [tensor.numel() for tensor in inputs]
    count = sum(sizes)
    if not count:
        return [None] * len(outputs)
    vectors: list[Tensor | None] = [
        _basis(tensor, sum(sizes[:place]), count - sum(sizes[: place + 1])) for place, tensor in enumerate(inputs)
    ]

    def run(given: list[Any]) -> list[Tensor]:
        products = level.products(outputs, given)
        return [_released(*pair, level.nodes) for pair in zip(products, outputs, strict=True)]

    return in_level(count, vectors, run)


def _basis(tensor: Tensor, before: int, after: int) -> Tensor:
    """Return the tangents of one input: zeros while those of others are not, and the unit vectors."""
    eye = function("eye")(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    rows: Tensor = function("constant_pad_nd")(eye, (0, 0, before, after), 0)
    return rows.reshape(-1, *tensor.shape) if tensor.numel() else rows.reshape(before + after, *tensor.shape)


def _called_with(call: Call, inputs: Sequence[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    with entered_level(is_transform=True) as level:
        outputs, _ = call([level.dual(*pair) for pair in zip(inputs, tangents, strict=True)])
        return [_released(*pair, level.nodes) for pair in zip(level.tangents(outputs), outputs, strict=True)]


def _released(product: Tensor | None, output: Tensor, own: Any) -> Tensor:
    return zeros_like(output.detach()) if product is None else released(product, own)


def _steps(inputs: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Iterate over tangents of all inputs, of which one element is one and the others are zero."""
    zeros = [zeros_like(tensor.detach()) for tensor in inputs]
    for place, tensor in enumerate(inputs):
        basis = function("eye")(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        for number in range(tensor.numel()):
            yield [*zeros[:place], basis[number].reshape(tensor.shape), *zeros[place + 1 :]]


def _blocks(columns: Tensor | None, shape: tuple[int, ...], output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the Jacobian of one result: for each input a tensor of the shapes of both, one after the other."""
    blocks, start = [], 0
    for tensor in inputs:
        whole, count = (*shape, *tensor.shape), tensor.numel()
        if columns is None or not count:
            blocks.append(output.detach().new_zeros(whole))
        else:
            blocks.append(columns.narrow(0, start, count).movedim(0, -1).reshape(whole))
        start += count
    return blocks
