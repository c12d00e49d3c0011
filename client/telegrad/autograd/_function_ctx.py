"""What a function of the program notes in its forward pass for its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError


class FunctionCtx:
    """What ``forward`` notes for ``backward``; any attribute may be set on it."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    keeps_operands = False
    """Whether the node keeps the operands, so that gradients that are objects of the program can flow through it."""
    _saved: Sequence[Any] | None = ()
    saved_for_forward: Sequence[Any] | None = None
    _dirty: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for ``backward``, which finds them in ``saved_tensors``; None is kept as it is.

        Raises ArgumentTypeError for other values where something needs a gradient; nothing else ever looks at them.
        """
        for tensor in tensors if any(self.needs_input_grad) else ():
            if tensor is not None and not isinstance(tensor, Tensor):
                raise ArgumentTypeError(
                    f"save_for_backward can only save variables, but got {type(tensor).__name__}; "
                    "set other values as attributes of ctx"
                )
        self._saved = tensors

    def save_for_forward(self, *tensors: Tensor) -> None:
        """Keep tensors for ``jvp``, which finds them in ``saved_tensors``."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise ArgumentTypeError(
                    f"save_for_forward can only save variables, but argument is of type {type(tensor).__name__}"
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Note that these inputs were modified in place; they must be returned from ``forward``."""
        self._dirty = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Do nothing: which tensors share memory is known."""

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Note that these results have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether ``backward`` gets zeros, or else None, for results that no gradient has reached."""
        self.materialize_grads = value
