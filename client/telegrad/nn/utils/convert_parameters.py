"""All parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, one after the other."""
    return function("cat")([parameter.reshape(-1) for parameter in parameters])  # type: ignore[no-any-return]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make slices of ``vec`` what the parameters hold."""
    if not isinstance(vec, Tensor):
        raise ArgumentTypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        part = vec.narrow(0, start, parameter.numel())
        parameter.data = part.view(parameter.shape).clone()
        start += parameter.numel()
