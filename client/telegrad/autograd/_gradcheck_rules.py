"""What ``gradcheck`` asks of a derivative besides its numbers: zeros give zeros, and no gradient at all gives none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, AutogradError

from ._passes import grad
from ._products import zeros_like
from .function import Function

Outputs = Callable[[], Sequence[Tensor]]
"""Calls the function that is checked, and returns its differentiable results."""


class GradcheckError(AutogradError):
    """A derivative is not what differences of values say, or does not go by the rules of derivatives."""


class OutputsChangeError(AutogradError, AssertionError):
    """A function gives results of other forms once its inputs are changed a little."""


class _Undefined(Function):
    """Hands its argument on, and no gradient back."""

    _stands_for_programs = True

    @staticmethod
    def forward(ctx: Any, output: Tensor) -> Tensor:
        return output.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        return None


def check_dense(outputs: Sequence[Tensor]) -> None:
    """Refuse results that are sparse."""
    layouts: list[Any] = [output.layout for output in outputs]
    if any([layout is not strided for layout in layouts]):
        raise ArgumentError("Sparse output is not supported at gradcheck yet. Please call to_dense() on it")


def check_same_form(output: Tensor, changed: Tensor) -> None:
    """Refuse a function whose result has another shape or type where an input is changed a little."""
    for name, before, after in (("shape", output.shape, changed.shape), ("dtype", output.dtype, changed.dtype)):
        if before != after:
            raise OutputsChangeError(
                f"Expected `func` to return outputs with the same {name} when inputs are perturbed, but got: "
                f"{before} and {after}"
            )


def check_zeros(outputs: Outputs, sources: Sequence[Tensor]) -> None:
    """Refuse a derivative that is not proportional to the gradients of the results: zeros must give zeros."""
    results = [output for output in outputs() if output.requires_grad]
    gradients = grad(results, sources, [zeros_like(result) for result in results], allow_unused=True)
    if not _are_zero(gradients):
        raise GradcheckError("backward not multiplied by grad_output")


def check_undefined(outputs: Outputs, sources: Sequence[Tensor]) -> None:
    """Refuse a derivative that fails, or gives anything, where no gradient has reached a result, or any of them."""
    count = len([output for output in outputs() if output.requires_grad])
    for missing in [range(count), *[(place,) for place in range(count) if count > 1]]:
        results = [output for output in outputs() if output.requires_grad]
        reached = [_Undefined.apply(one) if place in missing else one for place, one in enumerate(results)]
        try:
            vectors = [zeros_like(result) for result in results]
            has_failed = not _are_zero(grad(reached, sources, vectors, allow_unused=True))
        except RuntimeError as error:
            raise GradcheckError(_UNDEFINED) from error
        if has_failed:
            raise GradcheckError(_UNDEFINED)


_UNDEFINED = (
    "Expected backward function to handle undefined output grads: where a gradient is None, it has to give "
    "None or zeros"
)


def _are_zero(gradients: Sequence[Tensor | None]) -> bool:
    return all([gradient is None or not gradient.count_nonzero() for gradient in gradients])
