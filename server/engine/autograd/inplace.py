"""In-place operations and views: which values may be modified, and how their history is rebased.

The root of a view is the value at the end of its chain of bases. Modifying a view gives its root a ``CopySlices`` node.
The other views of that root get a new history, ``as_strided`` of the root, when they are next used and the root's
history was rebased at a later version than they have seen. Knows nothing of how a graph is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import functional as F
from server.engine.operators import OPERATORS
from server.engine.value import MULTIPLE, TRACKED, UNTRACKED, Value
from telegrad_protocol.errors import AutogradError, DTypeError, InplaceError
from telegrad_protocol.meta import Meta

from .graph import Edge, Node, accumulator_of, make_leaf, with_history
from .node import GradientPlan, OpNode


def requires_grad(value: Value) -> bool:
    """Whether a gradient flows into ``value``."""
    if value.base is not None:
        _refresh(value, value.base)
    return value.autograd is not None and value.autograd.requires_grad


def set_requires_grad(value: Value, wanted: bool) -> None:
    """Set whether a leaf requires a gradient; a result that requires one cannot cease to."""
    if wanted and not value.meta.dtype.is_differentiable:
        raise DTypeError(f"requires_grad_: only floating-point and complex tensors can require grad, not {value.meta}")
    if requires_grad(value) and value.autograd is not None and value.autograd.grad_fn is not None:
        if not wanted:
            raise AutogradError("requires_grad_: only leaf tensors can stop to require grad; use detach()")
        return
    make_leaf(value, wanted)


def edge_of(value: Value) -> Edge | None:
    """Return where gradients of ``value`` flow, None if it requires none; refreshes views of a modified root first."""
    root = value.base
    if root is not None and root.autograd is not None and value.seen < root.autograd.rebased:
        _refresh(value, root)
    meta = value.autograd
    if meta is None:
        return None
    if meta.grad_fn is not None:
        return meta.grad_fn, meta.output
    if not meta.requires_grad:
        return None
    accumulator = meta.accumulator
    return (accumulator and accumulator()) or accumulator_of(value), 0


def _refresh(view: Value, root: Value) -> None:
    """Rebase ``view`` if in-place operations on its root, or on other views of it, have changed the root's history."""
    history = root.autograd
    if history is None or view.seen >= history.rebased:
        return
    if view.origin != TRACKED:
        raise AutogradError(
            f"{view.meta} is a view {_HOW_MADE[view.origin]}, and its base or another view of its base was modified "
            "in place with gradients enabled; make the view anew"
        )
    edge = edge_of(root)
    if edge is not None:
        _view_anew(view, edge, root)


def _view_anew(view: Value, edge: Edge, root: Value) -> None:
    """Make ``view``'s history that of a view of the current ``root``, by way of pairs where one of them is complex."""
    root_meta, meta = root.meta, view.meta
    if root_meta.dtype.is_complex and not meta.dtype.is_complex:
        pairs = OPERATORS["view_as_real"].op.rule(root_meta)
        edge, root_meta = _viewed("view_as_real", (root_meta,), edge, pairs), pairs
    if meta.dtype.is_complex and not root_meta.dtype.is_complex:
        pairs = _pairs_of(root_meta, meta)
        edge = _viewed("as_strided", (root_meta, pairs.shape, pairs.strides, pairs.offset), edge, pairs)
        edge = _viewed("view_as_complex", (pairs,), edge, meta)
    else:
        edge = _viewed("as_strided", (root_meta, meta.shape, meta.strides, meta.offset), edge, meta)
    _set_history(view, edge[0])
    view.seen = view.storage.version


def _viewed(name: str, args: tuple[Any, ...], edge: Edge, meta: Meta) -> Edge:
    """Return where gradients of a view flow that an operation makes of what is at ``edge``."""
    return OpNode(GradientPlan(OPERATORS[name], 1, args), (edge,), (meta,), []), 0


def _pairs_of(root: Meta, view: Meta) -> Meta:
    """Return the meta of the pairs of real numbers that a complex view of a real root shows."""
    strides = tuple([2 * stride for stride in view.strides])
    return Meta.of((*view.shape, 2), root.dtype, root.device, (*strides, 1), 2 * view.offset)


def _set_history(value: Value, node: Node) -> None:
    """Make ``node`` the history of a value that was modified; a gradient that is retained is that of the new value."""
    old = value.autograd.grad_fn if value.autograd is not None else None
    retains = old is not None and old.stop_retaining(value)
    with_history(value, node, 0)
    if retains:
        node.retain_grad(0, value)


_HOW_MADE = {UNTRACKED: "made with gradients disabled", MULTIPLE: "made by an operation that gives several"}


def check_writable(name: str, target: Value) -> None:
    """Refuse to modify, with gradients recorded, a leaf that requires grad, a view of one, or an untracked view."""
    if _is_leaf_requiring_grad(target):
        raise InplaceError(
            f"{name}: a leaf Variable that requires grad is being used in an in-place operation; use no_grad()"
        )
    if target.base is None:
        return
    if target.autograd is not None and target.autograd.requires_grad and _is_leaf(target.base):
        raise InplaceError(
            f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation"
        )
    if target.origin != TRACKED:
        raise InplaceError(
            f"{name}: a view {_HOW_MADE[target.origin]} is modified in place with gradients enabled; clone it first"
        )


def _is_leaf_requiring_grad(value: Value) -> bool:
    return value.autograd is not None and value.autograd.requires_grad and _is_leaf(value)


def _is_leaf(value: Value) -> bool:
    return value.autograd is None or value.autograd.grad_fn is None


def rebase(target: Value, node: Node) -> None:
    """Make ``node`` the history of ``target``, and of its root if it is a view."""
    root = target.base
    if root is None:
        _set_history(target, node)
        target.autograd.rebased = target.storage.version  # type: ignore[union-attr]
        return
    copy_slices = CopySlices(edge_of(root), root.meta, target.meta, node)
    _set_history(root, copy_slices)
    root.autograd.rebased = target.storage.version  # type: ignore[union-attr]
    _view_anew(target, (copy_slices, 0), root)


class Overwritten(Node):
    """The node of an in-place operation without derivative: no gradient flows through it."""

    __slots__ = ()

    def __init__(self, meta: Meta) -> None:
        super().__init__((None,), (meta,))

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        return (None,)


class CopySlices(Node):
    """The node of modifying a view: the view's part of the root's gradient goes through the operation's own node."""

    __slots__ = ("inner", "view")

    def __init__(self, root_edge: Edge | None, root: Meta, view: Meta, inner: Node) -> None:
        super().__init__((root_edge, *inner.edges[1:]), (root,))
        self.view = view
        self.inner = inner

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        if grads[0] is None:
            return [None] * len(self.edges)
        root, view = self.metas[0], self.view
        is_pairs = root.dtype.is_complex and not view.dtype.is_complex
        of_pairs = view.dtype.is_complex and not root.dtype.is_complex
        view = _pairs_of(root, view) if of_pairs else view
        grad = F.view_as_real(restride(grads[0], root)) if is_pairs else restride(grads[0], root)
        offset = view.offset - root.offset * (1 + is_pairs)
        view_grad = F.as_strided(grad, view.shape, view.strides, grad.meta.offset + offset)
        input_grads = list(self.inner.apply([F.view_as_complex(view_grad) if of_pairs else view_grad]))
        if self.edges[0] is None:
            return [None, *input_grads[1:]]
        replacement = input_grads[0]
        if replacement is None:
            replacement = F.zeros_like(view_grad)
        elif of_pairs:
            replacement = F.view_as_real(replacement)
        root_grad = F._scatter_strided(grad, replacement, view.shape, view.strides, offset)
        return [F.view_as_complex(root_grad) if is_pairs else root_grad, *input_grads[1:]]

    def release(self) -> None:
        self.inner.release()


def restride(grad: Value, meta: Meta) -> Value:
    """Return ``grad`` with the strides of ``meta``: itself if it has them already."""
    return grad if grad.meta.strides == meta.strides else F._in_layout(grad, meta.strides)
