"""Tensors with a tangent, and what operations do with them.

A dual number is recorded for differentiation like a tensor that requires a gradient, whatever the modes of the thread
say, so that its tangent can be computed from the graph. To the program it seems to require none, unless it was computed
from tensors that do. Calls look at this only where they meet types of arguments that are new to them: the patterns of
calls with dual numbers are not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from telegrad._ops.operand_classes import without_modes
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import OperationNode, ReceiverNode
from telegrad._tensor.grad_fn import GradFn, shown_node
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError


class DualTensor(Tensor):
    """A tensor with a tangent. ``_shows_grad`` tells whether it also requires a gradient, as far as programs see."""

    __slots__ = ()

    _shows_grad = False

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into this tensor."""
        return self._shows_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients flow into this tensor; only leaves can be told not to."""
        if not requires_grad:
            return super().requires_grad_(False)
        if not self._shows_grad:
            node = self._gradient_edge()
            self._node = ReceiverNode(node, getattr(node, "name", ""), ref(self))
            self._shows_grad = True
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require grad."""
        return not self._shows_grad

    @property
    def grad_fn(self) -> GradFn | None:
        """The operation that computed this tensor; None where it does not require grad."""
        node = self._node
        return shown_node(node, self) if self._shows_grad and isinstance(node, OperationNode) else None


class _Duals(threading.local):
    """The levels of dual numbers that a thread is in, and whether its calls look for dual numbers."""

    def __init__(self) -> None:
        self.levels: list[Any] = []
        self.intercepts = False
        self._alive: list[Any] = []

    def enter(self, level: Any) -> None:
        """Enter a level, in which tensors can have tangents."""
        self.levels.append(level)
        self.intercepts = True

    def exit(self, level: Any) -> None:
        """Leave a level; with the outermost one dual numbers become ordinary tensors."""
        self.levels.remove(level)
        self.intercepts = bool(self.levels)
        if not self.levels:
            alive, self._alive = self._alive, []
            for reference in alive:
                tensor = reference()
                if tensor is not None:
                    _become_ordinary(tensor)

    def adopt(self, tensor: Tensor, shows_grad: bool) -> bool:
        """Make a tensor that is tracked by the graph a dual number, in a level; return whether it was none before."""
        if self.levels and tensor.__class__ is Tensor:
            tensor.__class__ = DualTensor
            tensor._shows_grad = shows_grad  # type: ignore[attr-defined]
            self._alive.append(ref(tensor))
            return self.intercepts
        if isinstance(tensor, DualTensor):
            tensor._shows_grad = tensor._shows_grad or shows_grad
        return False


duals = _Duals()


def _become_ordinary(tensor: Tensor) -> None:
    shows_grad = tensor.requires_grad
    tensor.__class__ = Tensor
    if not shows_grad:
        with without_modes():
            plain = tensor.detach()
        tensor._id, plain._id = plain._id, tensor._id
        tensor._node, tensor._base, tensor._aliases, tensor._requires_grad = None, None, None, False


def run_in_level(miss: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call in a level of dual numbers: with any among its operands, it is recorded and its results are such."""
    operands = list(tensors_in((*args, *kwargs.values())))
    outer = thread.modes
    for tensor in operands:
        tensor._refresh()
    has_duals = not outer.inference and any([isinstance(tensor, DualTensor) for tensor in operands])
    if has_duals and kwargs.get("out") is not None:
        raise NotSupportedError("forward AD: out= is not supported with a dual number; leave it out")
    shows_grad = outer.records and any([tensor.requires_grad for tensor in operands])
    duals.intercepts = False
    if has_duals and not outer.grad:
        thread.modes = outer.but(grad=True)
    try:
        result = miss(args, kwargs)[0]
    finally:
        duals.intercepts = True
        thread.modes = outer
    if has_duals:
        for tensor in tensors_in((result,)):
            for changed in (tensor, tensor._base):
                if changed is not None and changed._is_tracked():
                    duals.adopt(changed, shows_grad)
                    if changed._aliases is not None:
                        changed._aliases.adopt = partial(duals.adopt, shows_grad=shows_grad)
    return result
