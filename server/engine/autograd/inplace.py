"""In-place operations and views: who may be modified, and how history is rebased.

Modifying a view gives its root a ``CopySlices`` node; the other views of that root see it through ``as_strided`` of the
root when they are next used. ``AutogradMeta.version`` is the storage's version when the history was last rebased.
"""

from __future__ import annotations

from collections.abc import Sequence


from telegrad_protocol.errors import AutogradError, DTypeError, InplaceError
from telegrad_protocol.meta import Meta

from .. import functional as F  # noqa: N812 - the field's name
from ..operators import OPERATORS
from ..value import Value
from .graph import Edge, Node, accumulator_of, make_leaf, with_history
from .node import OpNode


def requires_grad(value: Value) -> bool:
    """Whether a gradient flows into ``value``."""
    if value.base is not None:
        _refresh(value, value.base)
    return value.autograd is not None and value.autograd.requires_grad


def set_requires_grad(value: Value, wanted: bool) -> None:
    """Let gradients flow into a leaf, or no longer; what was computed from others does as these do."""
    if wanted and not value.meta.dtype.is_differentiable:
        raise DTypeError(f"requires_grad_: only floating-point and complex tensors can require grad, not {value.meta}")
    if requires_grad(value) and value.autograd is not None and value.autograd.grad_fn is not None:
        if not wanted:
            raise AutogradError("requires_grad_: only leaf tensors can stop to require grad; use detach()")
        return
    make_leaf(value, wanted)


def edge_of(value: Value) -> Edge | None:
    """Where gradients of ``value`` go; views of a root that was modified are refreshed first."""
    if value.base is not None:
        _refresh(value, value.base)
    meta = value.autograd
    if meta is None:
        return None
    if meta.grad_fn is not None:
        return Edge(meta.grad_fn, meta.output)
    return Edge(accumulator_of(value), 0) if meta.requires_grad else None


def _refresh(view: Value, root: Value) -> None:
    rebased = root.autograd.version if root.autograd is not None else 0
    if rebased == 0 or (view.autograd is not None and view.autograd.version >= rebased):
        return
    edge = edge_of(root)
    if edge is not None:
        _see_through(view, edge, root, rebased)


def _see_through(view: Value, edge: Edge, root: Value, version: int) -> None:
    """Make ``view``'s history that of a view of ``root`` as it is now."""
    args = (root.meta, view.meta.shape, view.meta.strides, view.meta.offset)
    node = OpNode(OPERATORS["as_strided"], (edge,), (view.meta,), (args, (0,), frozenset()))
    with_history(view, node, 0).autograd.version = version  # type: ignore[union-attr]


def check_writable(name: str, target: Value) -> None:
    """Refuse to modify a leaf that requires a gradient, or a view of one."""
    if _is_wanted_leaf(target):
        raise InplaceError(f"{name}: a leaf tensor that requires grad is modified in place; use no_grad() or detach() it first")
    if target.base is not None and _is_wanted_leaf(target.base):
        raise InplaceError(f"{name}: a view of a leaf tensor that requires grad is modified in place; use no_grad()")


def _is_wanted_leaf(value: Value) -> bool:
    meta = value.autograd
    return meta is not None and meta.requires_grad and meta.grad_fn is None


def rebase(target: Value, node: OpNode) -> None:
    """Make ``node`` the history of ``target``, and of the root that it is a view of."""
    version = target.storage.version
    root = target.base
    if root is None:
        with_history(target, node, 0).autograd.version = version  # type: ignore[union-attr]
        return
    copied = CopySlices(edge_of(root), root.meta, target.meta, node)
    with_history(root, copied, 0).autograd.version = version  # type: ignore[union-attr]
    _see_through(target, Edge(copied, 0), root, version)


class CopySlices(Node):
    """Backward of modifying a view: the view's part of the root's gradient goes through the operation's own node."""

    __slots__ = ("inner", "view")

    def __init__(self, root_edge: Edge | None, root: Meta, view: Meta, inner: OpNode) -> None:
        super().__init__((root_edge, *inner.edges[1:]), (root,))
        self.view = view
        self.inner = inner

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        if grads[0] is None:
            return [None] * len(self.edges)
        geometry = (self.view.shape, self.view.strides, self.view.offset)
        grad = restride(grads[0], self.metas[0])
        seen = F.as_strided(grad, *geometry)
        through = list(self.inner.apply([seen]))
        replaced = through[0] if through[0] is not None else F.zeros_like(seen)
        return [F.as_strided_scatter(grad, replaced, *geometry), *through[1:]]

    def release(self) -> None:
        self.inner.release()


def restride(grad: Value, meta: Meta) -> Value:
    """``grad`` in the memory order of ``meta``; itself where it has that order already."""
    if grad.meta.strides == meta.strides and grad.meta.offset == 0:
        return grad
    return F._in_layout(grad, meta.strides)


