"""The tensors that a pass begins at, and the gradients that it begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.autograd_graph import has_gradient
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError

Tensors = Tensor | Sequence[Tensor]


def listed(given: Any) -> list[Tensor]:
    """Return one tensor or several as a list; in the place of a gradient edge stands a tensor that it is of."""
    several = [given] if isinstance(given, Tensor) or hasattr(given, "ownership_token") else list(given)
    tensors = [getattr(item, "ownership_token", item) for item in several]
    return [item if tensor is None else tensor for item, tensor in zip(several, tensors, strict=True)]


def gradients_listed(gradients: Any, count: int) -> list[Tensor | None]:
    """Return the gradients of so many tensors as a list."""
    if gradients is None:
        return [None] * count
    return [gradients] if isinstance(gradients, Tensor) else list(gradients)


def checked_roots(tensors: Tensors, gradients: Any, name: str) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the tensors and for each its gradient in the tensor's type; None stands for a one."""
    if type(tensors) is Tensor and gradients is None and has_gradient(tensors):
        meta = tensors._meta
        if meta.numel == 1 and meta.dtype.is_floating_point:
            return [tensors], [None]  # nearly always: a loss
    roots = listed(tensors)
    if not roots:
        raise AutogradError(f"{name}: no tensor given")
    given = gradients_listed(gradients, len(roots))
    if len(given) != len(roots):
        raise ArgumentError(f"{name}: {len(given)} gradients for {len(roots)} tensors")
    require_one_session(name, *roots, *(g for g in given if g is not None))
    for number, root in enumerate(roots):
        if not has_gradient(root):
            raise AutogradError(
                f"{name}: {root._meta} does not require grad and was not computed from a tensor that does: element "
                f"{number} of tensors does not require grad and does not have a grad_fn"
            )
    return roots, [_checked(name, number, *pair) for number, pair in enumerate(zip(roots, given, strict=True))]


def _checked(name: str, number: int, root: Tensor, gradient: Tensor | None) -> Tensor | None:
    if gradient is None:
        _check_implicit(name, root)
        return None
    if gradient._meta.shape != root._meta.shape:
        raise ShapeError(
            f"Mismatch in shape: grad_output[{number}] has a shape of {gradient.shape} and output[{number}] has a "
            f"shape of {root.shape}."
        )
    if gradient.dtype is root.dtype:
        return gradient
    if gradient.is_complex() is not root.is_complex():
        raise AutogradError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{number}] has a dtype of torch.{gradient.dtype.name} and output[{number}] has a dtype of "
            f"torch.{root.dtype.name}."
        )
    return gradient.to(root.dtype)


def _check_implicit(name: str, root: Tensor) -> None:
    if root.numel() != 1:
        raise AutogradError(f"{name}: grad can be implicitly created only for scalar outputs, not for {root._meta}")
    if root.is_complex():
        raise AutogradError(
            f"{name}: grad can be implicitly created only for real scalar outputs but got {root._meta}; "
            "differentiate its real part, or pass a gradient"
        )
