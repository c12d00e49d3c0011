"""``backward`` and ``grad``: one instruction each; the server differentiates.

The client gives the gradients their numbers. It knows from its own graph which tensors receive one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError
from telegrad_protocol.messages import Backward, Gradient
from telegrad_protocol.meta import Meta

from ._session.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ._session.thread_modes import thread
from ._tensor.autograd_graph import OperationNode, gradient_receivers, reachable
from ._tensor.tensor import Tensor, require_one_session

__all__ = ["backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]

Tensors = Tensor | Sequence[Tensor]


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into ``.grad`` of the leaves that they reach, or of ``inputs``."""
    roots, gradients = _roots(tensors, grad_tensors, "backward")
    session = roots[0]._session
    wanted = _wanted(roots, inputs)
    leaves = [(leaf._id, _gradient_of(leaf, create_graph)._id) for leaf in wanted]
    retain = create_graph if retain_graph is None else retain_graph
    site = session.sites.current()
    session.submit(
        Backward(site, _ids(roots), _optional_ids(gradients), leaves, retain, create_graph, inputs is not None),
        thread.modes,
    )
    if create_graph:
        _update_handles([leaf._grad for leaf in wanted if leaf._grad is not None], roots, gradients)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``; accumulates nothing.

    Waits only with ``create_graph``, for one round trip.
    """
    roots, gradients = _roots(outputs, grad_outputs, "grad")
    session = roots[0]._session
    sources = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    require_one_session("grad", roots[0], *sources)
    for source in sources:
        if not source.requires_grad:
            raise AutogradError(f"grad: {source._meta} does not require grad")
    reached = reachable([root._gradient_edge() for root in roots])
    used = [source._gradient_edge() in reached for source in sources]
    if not all(used) and not (allow_unused or materialize_grads):
        raise AutogradError(
            "grad: one of the inputs is not part of the graph; pass allow_unused=True to get None for it"
        )
    results = [
        Tensor(session, session.new_id(), gradient_meta(source)) if is_used else None
        for source, is_used in zip(sources, used, strict=True)
    ]
    targets = _ids([source for source, is_used in zip(sources, used, strict=True) if is_used])
    computed = [gradient for gradient in results if gradient is not None]
    retain = create_graph if retain_graph is None else retain_graph
    site = session.sites.current()
    session.submit(
        Gradient(site, _ids(roots), _optional_ids(gradients), targets, _ids(computed), retain, create_graph, True),
        thread.modes,
    )
    if create_graph:
        _update_handles(computed, roots, gradients)
    if materialize_grads:
        return tuple(
            gradient if gradient is not None else source.new_zeros(source.shape)
            for gradient, source in zip(results, sources, strict=True)
        )
    return tuple(results)


def _ids(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([tensor._id for tensor in tensors])


def _optional_ids(tensors: Sequence[Tensor | None]) -> tuple[int | None, ...]:
    return tuple([None if tensor is None else tensor._id for tensor in tensors])


def _roots(tensors: Tensors, gradients: Any, name: str) -> tuple[list[Tensor], list[Tensor | None]]:
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not roots:
        raise ArgumentError(f"{name}: no tensor given")
    if gradients is None:
        gradients = [None] * len(roots)
    given: list[Tensor | None] = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    if len(given) != len(roots):
        raise ArgumentError(f"{name}: {len(given)} gradients for {len(roots)} tensors")
    require_one_session(name, *roots, *(g for g in given if g is not None))
    for root, gradient in zip(roots, given, strict=True):
        if not root.requires_grad:
            raise AutogradError(
                f"{name}: {root._meta} does not require grad and was not computed from a tensor that does"
            )
        if gradient is None and root.numel() != 1:
            raise AutogradError(f"{name}: a gradient can be implicitly created only for scalars, not for {root._meta}")
        if gradient is not None and gradient._meta.shape != root._meta.shape:
            raise ShapeError(f"{name}: gradient {gradient._meta} does not have the shape of {root._meta}")
    return roots, given


def _wanted(roots: list[Tensor], inputs: Any) -> list[Tensor]:
    if inputs is None:
        return gradient_receivers([root._gradient_edge() for root in roots])
    listed = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not listed:
        raise ArgumentError("backward: inputs must not be empty")
    require_one_session("backward", roots[0], *listed)
    reached = reachable([root._gradient_edge() for root in roots])
    for tensor in listed:
        if not tensor.requires_grad:
            raise AutogradError(f"backward: {tensor._meta} among inputs does not require grad")
    return [tensor for tensor in listed if tensor._gradient_edge() in reached]


def _gradient_of(leaf: Tensor, create_graph: bool) -> Tensor:
    """Return the leaf's gradient, with a new number if it has none yet, or if a sum with a graph replaces it."""
    if leaf._grad is None or create_graph:
        leaf._grad = Tensor(leaf._session, leaf._session.new_id(), gradient_meta(leaf))
    return leaf._grad


def gradient_meta(leaf: Tensor) -> Meta:
    """Return the meta of a leaf's gradient: it has the leaf's strides where these are dense, else it is row-major."""
    meta = leaf._meta
    if meta.is_contiguous and not meta.offset:
        return meta
    return meta.like(strides=meta.strides if meta.is_dense else None)


def _update_handles(computed: list[Tensor], roots: list[Tensor], gradients: list[Tensor | None]) -> None:
    """Ask which new gradients require grad themselves and how they are laid out, and tell their handles."""
    if not computed:
        return
    parents = tuple(t._gradient_edge() for t in [*roots, *gradients] if t is not None and t.requires_grad)
    ids, devices = zip(*[(gradient._id, gradient.device) for gradient in computed], strict=True)
    described = computed[0]._session.describe(ids, devices)
    for tensor, (meta, requires_grad) in zip(computed, described, strict=True):
        tensor._meta = meta
        if requires_grad:
            tensor._requires_grad, tensor._node = True, OperationNode(parents, "AddBackward0")


def _backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradient of this tensor into the leaves that it was computed from. No round trip."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


METHODS: dict[str, Any] = {"backward": _backward}
