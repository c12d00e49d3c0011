"""Jacobians taken forwards: one product with a tangent for each element of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor

from ._levels import entered_level
from ._products import released, zeros_like

Call = Callable[[list[Tensor]], tuple[Sequence[Tensor], Any]]
"""Calls a function with these inputs; returns its results, and anything else."""


def forward_jacobian(call: Call, inputs: Sequence[Tensor]) -> tuple[Any, list[list[Tensor]]]:
    """Return what ``call`` returns second, and for each result and input a tensor of the shapes of both.

    The function is called once, or also once for each element where it applies functions with a ``jvp`` of their own.
    """
    with entered_level() as level:
        outputs, rest = call([level.dual(tensor, tensor) for tensor in inputs])
        columns = []
        if not level.has_rules:
            for steps in _steps(inputs):
                products = level.products(outputs, steps)
                columns.append([_released(*pair, level.nodes) for pair in zip(products, outputs, strict=True)])
        shapes = [tuple(output.shape) for output in outputs]
    if not columns:
        columns = [_called_with(call, inputs, steps) for steps in _steps(inputs)]
    return rest, [
        _blocks([column[place] for column in columns], shape, outputs[place], inputs)
        for place, shape in enumerate(shapes)
    ]


def _called_with(call: Call, inputs: Sequence[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    with entered_level() as level:
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


def _blocks(columns: list[Tensor], shape: tuple[int, ...], output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the Jacobian of one result: for each input a tensor of the shapes of both, one after the other."""
    blocks, start = [], 0
    for tensor in inputs:
        own = columns[start : start + tensor.numel()]
        start += tensor.numel()
        whole = (*shape, *tensor.shape)
        if own:
            blocks.append(function("stack")(own).movedim(0, -1).reshape(whole))
        else:
            blocks.append(function("zeros")(whole, dtype=output.dtype, device=output.device))
    return blocks
