"""Handles on gradients that a backward pass computes: numbers, metas, what they require, and which results keep them.

A pass that accumulates into no leaves, or into some, goes through the nodes between its roots and what it is asked for.
Results of these nodes that retain their gradients get them as in any other pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from telegrad._ops.operand_classes import HANDLERS, OVERRIDING
from telegrad._session.grad_mode import no_grad, set_grad_enabled
from telegrad._session.own_code import note_once
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.autograd_graph import GradientEdge, GradientNode, StandInNode, reachable
from telegrad._tensor.tensor import Tensor, new_tensor
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.meta import Meta

UNUSED: Final = (
    "grad: One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this "
    "is the desired behavior, to get None for it"
)


def flags_of(retain_graph: Any, create_graph: Any) -> tuple[bool, bool]:
    """Return whether a pass keeps its graph and whether it is recorded; integers are flags, as in PyTorch."""
    for name, value in (("retain_graph", retain_graph), ("create_graph", create_graph)):
        if not isinstance(value, int) and not (value is None and name == "retain_graph"):
            raise ArgumentTypeError(f"backward: {name} must be a bool, not {value!r}")
    return bool(create_graph if retain_graph is None else retain_graph), bool(create_graph)


def gradient_of(leaf: Tensor, create_graph: bool) -> Tensor:
    """Return the leaf's gradient, with a new number if it has none yet, or if a sum with a graph replaces it."""
    if leaf._grad is not None and _is_sparse(leaf._grad):
        make_dense(leaf)
    if leaf._grad is None or create_graph:
        leaf._grad = new_gradient(leaf._session, dense_meta(leaf._meta))
    return leaf._grad


def pairs_for(leaves: Sequence[Tensor], create_graph: bool) -> list[tuple[int, int]]:
    """Return for every leaf its number and that of its gradient, which ``gradient_of`` gives.

    With ``create_graph`` gradients refer to the leaves that refer to them, of which the program is warned once.
    """
    if create_graph:
        note_once(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its "
            "gradient which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid "
            "this. If you have to use this function, make sure to reset the .grad fields of your parameters to None "
            "after use to break the cycle and avoid the leak."
        )
    pairs = []
    for leaf in leaves:
        gradient = leaf._grad
        if gradient is None:
            meta = leaf._meta
            if meta.offset or not meta.is_contiguous:
                meta = dense_meta(meta)
            gradient = leaf._grad = new_gradient(leaf._session, meta)
        elif create_graph or type(gradient) is not Tensor:
            gradient = gradient_of(leaf, create_graph)
        pairs.append((leaf._id, gradient._id))
    return pairs


def new_gradient(session: ClientSession, meta: Meta) -> Tensor:
    """Return the handle of a gradient that is about to be computed."""
    new_id, adopt = session.new_id, session.adopt
    tensor = new_tensor(session, new_id(), meta)
    return tensor if adopt is None else adopt(tensor)


def gradient_meta(leaf: Tensor) -> Meta:
    """Return the meta of a leaf's gradient."""
    return dense_meta(leaf._meta)


def dense_meta(meta: Meta) -> Meta:
    """Return the meta of a gradient: it has the strides of its tensor where these are dense, else it is row-major."""
    if meta.is_contiguous and not meta.offset:
        return meta
    return meta.like(strides=meta.strides if meta.is_dense else None)


def _is_sparse(gradient: Tensor) -> bool:
    return gradient.__class__ in HANDLERS and gradient.__class__ not in OVERRIDING


def make_dense(leaf: Tensor) -> None:
    """Make the sparse gradient of a leaf dense: the server adds to dense gradients only."""
    if leaf._grad is not None and _is_sparse(leaf._grad):
        with no_grad():
            leaf.grad = leaf._grad.to_dense()


def settle(stand_ins: Sequence[StandInNode], adds: bool = True) -> None:
    """Give the gradients of stand-ins to the leaves that they stand for, and let the next pass begin anew."""
    for node in stand_ins:
        gradient = node.held._grad
        if gradient is not None:
            node.held.grad = None
            node.settle(gradient, adds)


def update_handles(computed: list[Tensor], roots: list[Tensor], gradients: list[Tensor | None]) -> None:
    """Ask which new gradients require grad themselves and how they are laid out, and tell their handles."""
    if not computed:
        return
    parents = tuple([t._gradient_edge() for t in [*roots, *gradients] if t is not None and t._is_tracked()])
    describe(computed, parents)


def is_moved(tensor: Tensor) -> bool:
    """Return whether a tensor is a leaf whose gradients may have another form than it has now."""
    extras = None if tensor._node is None else tensor._node.extras
    return extras is not None and extras.is_moved


def tell_forms(gradients: Sequence[Tensor | None], sources: Sequence[Tensor] = ()) -> None:
    """Ask what form gradients have that was not known when they were numbered. One round trip, if there are any.

    These are those of the sources that are moved, where there are sources.
    """
    if sources:
        gradients = [one for source, one in zip(sources, gradients, strict=True) if is_moved(source)]
    asked = [one for one in gradients if one is not None and not isinstance(one._session, ShapeSession)]
    if asked:
        ids, devices = zip(*[(gradient._id, gradient.device) for gradient in asked], strict=True)
        for gradient, (meta, _) in zip(asked, asked[0]._session.describe(ids, devices), strict=True):
            gradient._meta = meta


def describe(computed: list[Tensor], parents: tuple[GradientEdge, ...]) -> None:
    """Ask what the new gradients are, and give those that require grad these parents. One round trip."""
    if isinstance(computed[0]._session, ShapeSession):
        described = [(gradient._meta, True) for gradient in computed]
    else:
        ids, devices = zip(*[(gradient._id, gradient.device) for gradient in computed], strict=True)
        described = computed[0]._session.describe(ids, devices)
    for tensor, (meta, requires_grad) in zip(computed, described, strict=True):
        tensor._meta = meta
        if requires_grad:
            tensor._requires_grad, tensor._node = True, GradientNode(parents, "AddBackward0")


def drop_unreached(leaves: Sequence[Tensor]) -> None:
    """Ask which of the leaves' gradients exist, and leave the others without one. One round trip."""
    gradients = [leaf._grad for leaf in leaves]
    for leaf, is_computed in zip(leaves, are_computed(gradients), strict=True):
        if not is_computed:
            leaf._grad = None


def are_computed(tensors: Sequence[Tensor | None]) -> list[bool]:
    """Ask which of these were computed. One round trip, where there are any."""
    ids = [tensor._id for tensor in tensors if tensor is not None]
    session = next((tensor._session for tensor in tensors if tensor is not None), None)
    known = dict(zip(ids, session.query("computed", ids), strict=True)) if session is not None else {}
    return [tensor is not None and known[tensor._id] for tensor in tensors]


def retained_between(reached: Iterable[GradientEdge], sources: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors with ``retain_grad`` among those that a pass goes through on its way to ``sources``."""
    holders = [tensor for node in reached if node.extras is not None for tensor in node.extras.retaining()]
    wanted = {source._gradient_edge() for source in sources} if holders else set()
    through = [one for one in holders if not wanted.isdisjoint(reachable([one._gradient_edge()]))]
    return sorted(through, key=lambda tensor: tensor._id)  # in the same order in each run


def missing_in(sources: Sequence[Tensor], others: Iterable[Tensor]) -> list[Tensor]:
    """Return those of other tensors that are none of ``sources``."""
    return [other for other in others if not any(other is source for source in sources)]


def keep_retained(
    retained: Iterable[Tensor], sources: Sequence[Tensor], gradients: Sequence[Tensor | None], create_graph: bool
) -> None:
    """Add gradients with respect to ``sources`` to the ``.grad`` of those tensors among them that retain theirs."""
    with set_grad_enabled(create_graph):
        for tensor in retained:
            gradient = next(one for source, one in zip(sources, gradients, strict=True) if source is tensor)
            if gradient is not None:
                tensor.grad = gradient.clone() if tensor._grad is None else tensor._grad + gradient


def materialized(
    results: Sequence[Tensor | None], sources: Sequence[Tensor], create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Put zeros in the places of missing gradients; they require a gradient where a graph is made, as others do."""
    return tuple(
        gradient if gradient is not None else source.new_zeros(source.shape, requires_grad=create_graph)
        for gradient, source in zip(results, sources, strict=True)
    )
