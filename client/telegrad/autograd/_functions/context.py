"""What a function of the program is called with, and what it notes in its forward pass for its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import Signature, signature
from typing import Any

from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, InplaceError


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


def check_dirty(ctx: FunctionCtx, records: bool) -> None:
    """Refuse operands that ``forward`` says it has modified, where their derivatives cannot follow."""
    for tensor in ctx._dirty if records else ():
        if tensor.requires_grad and isinstance(tensor._gradient_edge(), LeafNode):
            raise InplaceError("mark_dirty: a leaf tensor that requires grad has been used in an in-place operation")


@lru_cache(maxsize=256)
def _signature(forward: Callable[..., Any]) -> Signature:
    return signature(forward)


def with_defaults(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments by place, with the defaults of those that it leaves out; and what has no place."""
    known = _signature(forward)
    if not kwargs and len(args) >= len(known.parameters):
        return args, kwargs
    bound = known.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs
