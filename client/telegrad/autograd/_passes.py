"""``backward`` and ``grad``: one instruction each; the server differentiates.

The client gives the gradients their numbers. It knows from its own graph which tensors receive one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from telegrad._ops.batching import batching
from telegrad._ops.duals import duals
from telegrad._ops.operand_classes import HANDLERS
from telegrad._ops.operands.roots import Tensors, checked_roots, gradients_listed, listed
from telegrad._session.catching.prompt_errors import PATIENTLY, wait_where_caught
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import (
    GradientEdge,
    SourceNode,
    StandInNode,
    has_client_parts,
    has_gradient,
    has_gradients,
    reachable,
    stand_ins_among,
)
from telegrad._tensor.receivers import Receivers, gradient_receivers
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad_protocol.errors import ArgumentError, AutogradError
from telegrad_protocol.messages import Backward, Gradient

from ._batched_passes import are_batched, grad_in_levels, in_level
from ._client_pass import ClientPass
from ._composed_operands import has_composed, in_forms_of, values_of
from ._gradients import (
    UNUSED,
    are_computed,
    drop_unreached,
    flags_of,
    gradient_meta,
    is_moved,
    keep_retained,
    materialized,
    missing_in,
    new_gradient,
    pairs_for,
    retained_between,
    settle,
    tell_forms,
    update_handles,
)
from .anomaly_mode import anomalies, explained, wait_explained


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into ``.grad`` of the leaves that they reach, or of ``inputs``."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise ArgumentError("backward: grad_variables is the former name of grad_tensors; pass only the latter")
        grad_tensors = grad_variables
    if HANDLERS:
        tensors, grad_tensors = values_of(listed(tensors)), values_of(grad_tensors)
        inputs = None if inputs is None else values_of(listed(inputs))
    roots, gradients = checked_roots(tensors, grad_tensors, "backward")
    session = roots[0]._session
    retain, create_graph = flags_of(retain_graph, create_graph)
    if inputs is not None:
        inputs = listed(inputs)
        inputs += missing_in(inputs, retained_between(reachable([root._gradient_edge() for root in roots]), inputs))
    receivers = _receivers(roots, inputs)
    if receivers is None:
        with explained(session), ClientPass(roots, gradients, inputs, retain, create_graph) as stopping:
            stopping.accumulate()
        wait_where_caught(session, PATIENTLY)
        if stopping.handed:
            _continue(stopping.handed, retain, create_graph, inputs)
        return
    wanted = receivers.tensors
    if inputs is not None and not wanted:
        return  # no gradient flows to any of them
    leaves = pairs_for(wanted, create_graph)
    site = session.sites.current()
    session.submit(
        Backward(site, _ids(roots), _optional_ids(gradients), leaves, retain, create_graph, inputs is not None),
        thread.modes,
    )
    if anomalies.is_enabled:
        wait_explained(session)
    wait_where_caught(session, PATIENTLY)
    if not receivers.are_certain:
        drop_unreached(wanted)
    tell_forms([leaf._grad for leaf in receivers.moved])
    if create_graph:
        computed = [leaf._grad for leaf in wanted if leaf._grad is not None]
        update_handles(computed, roots, gradients)
        if duals.intercepts:
            _adopt(computed, True)
    if receivers.stand_ins:
        settle(receivers.stand_ins)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``; accumulates nothing.

    With ``is_grads_batched`` the first dimension of ``grad_outputs`` counts passes, and so does that of the results.
    Waits only with ``create_graph``, for one round trip.
    """
    if not only_inputs:
        raise ArgumentError("grad: only_inputs=False is not supported; use backward() to accumulate into leaves")
    if is_grads_batched:
        passes = partial(
            grad, outputs, inputs, create_graph=create_graph, allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )  # fmt: skip
        return _batched(passes, grad_outputs, create_graph if retain_graph is None else retain_graph)
    if materialize_grads and allow_unused is False:
        raise ArgumentError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if HANDLERS:
        if batching.levels:
            several = listed(outputs), listed(inputs), gradients_listed(grad_outputs, len(listed(outputs)))
            if are_batched(*several):
                passes = partial(
                    grad, create_graph=create_graph, allow_unused=allow_unused, materialize_grads=materialize_grads
                )
                return grad_in_levels(passes, *several, create_graph if retain_graph is None else retain_graph)
        outputs, inputs, grad_outputs = values_of(listed(outputs)), listed(inputs), values_of(grad_outputs)
        if has_composed(inputs):
            gradients_of_values = grad(
                outputs, values_of(inputs), grad_outputs, retain_graph, create_graph, allow_unused=allow_unused,
                materialize_grads=materialize_grads,
            )  # fmt: skip
            return in_forms_of(inputs, gradients_of_values)
    roots, gradients = checked_roots(outputs, grad_outputs, "grad")
    sources = listed(inputs)
    if not sources:
        raise AutogradError("`inputs` argument to `grad()` cannot be empty.")
    require_one_session("grad", roots[0], *sources)
    for source in sources:
        if not has_gradient(source):
            raise AutogradError(f"grad: {source._meta} does not require grad")
    reached = reachable([root._gradient_edge() for root in roots])
    stand_ins = [
        node
        for node in stand_ins_among(reached)
        if any(node.target is source for source in sources) and not any(node.held is source for source in sources)
    ]
    if stand_ins:
        passes = partial(
            grad, outputs, grad_outputs=grad_outputs, retain_graph=retain_graph, create_graph=create_graph,
            allow_unused=allow_unused, materialize_grads=materialize_grads,
        )  # fmt: skip
        return _with_stand_ins(passes, sources, stand_ins, reached)
    used = [source._gradient_edge() in reached for source in sources]
    if not all(used) and not (allow_unused or materialize_grads):
        raise AutogradError(UNUSED)
    if not any(used):
        nothing: list[Tensor | None] = [None] * len(sources)
        return materialized(nothing, sources, create_graph) if materialize_grads else tuple(nothing)
    retained = retained_between(reached, [source for source, is_used in zip(sources, used, strict=True) if is_used])
    wanted = [*sources, *missing_in(sources, retained)]
    retain, create_graph = flags_of(retain_graph, create_graph)
    results, unhooked = _to_sources(
        roots, gradients, wanted, reached, retain, create_graph, bool(allow_unused or materialize_grads)
    )
    if retained:
        keep_retained(retained, wanted, results, create_graph)
    del results[len(sources) :]
    if unhooked:
        results = [unhooked.get(source._id, result) for source, result in zip(sources, results, strict=True)]
    return materialized(results, sources, create_graph) if materialize_grads else tuple(results)


def _to_sources(
    roots: list[Tensor], gradients: list[Tensor | None], sources: list[Tensor], reached: set[GradientEdge],
    retain: bool, create_graph: bool, allows_unused: bool,
) -> tuple[list[Tensor | None], dict[int, Tensor]]:  # fmt: skip
    """Return the gradients with respect to tensors of which at least one is among what the roots reach.

    Return also what PyTorch returns for those whose gradients flow on to others: by their numbers, the gradients as
    their hooks were given them. A gradient with which a pass ends is what the hooks returned.
    """
    session = roots[0]._session
    used = [source._gradient_edge() in reached for source in sources]
    records = create_graph or (
        duals.intercepts and any([isinstance(node, SourceNode) and node.is_active for node in reached])
    )
    retain = retain or records
    if has_client_parts(reached):
        with explained(session), ClientPass(roots, gradients, sources, retain, records, adds=False) as stopping:
            results = stopping.gradients(allows_unused)
        tell_forms(results, sources)
        wait_where_caught(session, PATIENTLY)
        if stopping.handed:
            results = _with_continued(results, stopping.handed, sources, retain, create_graph, allows_unused)
        if duals.intercepts:
            _adopt(results, create_graph)
        return results, {} if stopping.handed else stopping.unhooked
    results = [
        new_gradient(session, gradient_meta(source)) if is_used else None
        for source, is_used in zip(sources, used, strict=True)
    ]
    targets = _ids([source for source, is_used in zip(sources, used, strict=True) if is_used])
    computed = [gradient for gradient in results if gradient is not None]
    given = _ids(roots), _optional_ids(gradients), targets, _ids(computed)
    session.submit(Gradient(session.sites.current(), *given, retain, records, True), thread.modes)
    if anomalies.is_enabled:
        wait_explained(session)
    wait_where_caught(session, PATIENTLY)
    if has_gradients(reached) or (create_graph and allows_unused):  # with a graph it is asked what they are anyway
        known = are_computed(results)
        if not all(known) and not allows_unused:
            raise AutogradError(UNUSED)
        results = [result if is_known else None for result, is_known in zip(results, known, strict=True)]
        computed = [gradient for gradient in results if gradient is not None]
    tell_forms(results, sources)
    if records:
        update_handles(computed, roots, gradients)
        if duals.intercepts:
            _adopt(computed, create_graph)
    return results, {}


Handed = list[tuple[Tensor, Tensor]]
"""Tensors with gradients that a pass has left to another one."""


def _continue(handed: Handed, retain: bool, create_graph: bool, inputs: list[Tensor] | None) -> None:
    """Accumulate what flows on from gradients that a pass has left to another one."""
    tensors, gradients = [list(column) for column in zip(*handed, strict=True)]
    if inputs is not None:
        reached = reachable([tensor._gradient_edge() for tensor in tensors])
        inputs = [tensor for tensor in inputs if tensor._gradient_edge() in reached]
    if inputs is None or inputs:
        backward(tensors, gradients, retain, create_graph, inputs=inputs)


def _with_continued(
    results: list[Tensor | None], handed: Handed, sources: list[Tensor], retain: bool, create_graph: bool, allowed: bool
) -> list[Tensor | None]:
    """Add to gradients what flows on from those that a pass has left to another one."""
    tensors, gradients = [list(column) for column in zip(*handed, strict=True)]
    more = grad(tensors, sources, gradients, retain, create_graph, allow_unused=True)
    pairs = zip(results, more, strict=True)
    summed = [b if a is None else a if b is None else a + b for a, b in pairs]
    if not allowed and any([gradient is None for gradient in summed]):
        raise AutogradError(UNUSED)
    return summed


def _with_stand_ins(
    passes: Callable[..., tuple[Tensor | None, ...]], sources: list[Tensor], stand_ins: Sequence[StandInNode],
    reached: set[GradientEdge],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Differentiate with respect to leaves of which some have stand-ins, and add up what these give to each."""
    targets = [node.target for node in stand_ins]
    plain = [
        source
        for source in sources
        if source._gradient_edge() in reached or not any(source is target for target in targets)
    ]
    for node in stand_ins:
        node.held._node = node
    gradients = passes(inputs=[*plain, *[node.held for node in stand_ins]])
    for node in stand_ins:
        node.held._node = None
    found: list[Tensor | None] = [None] * len(sources)
    for place, source in enumerate(sources):
        own = [gradient for other, gradient in zip(plain, gradients, strict=False) if other is source]
        parts: list[Any] = [gradient for gradient in own if gradient is not None]
        for node, gradient in zip(stand_ins, gradients[len(plain) :], strict=True):
            if node.target is source and gradient is not None:
                parts.append(node.settle(gradient, False))
        found[place] = sum(parts[1:], parts[0]) if parts else None
    return tuple(found)


def _batched(
    passes: Callable[..., tuple[Tensor | None, ...]], grad_outputs: Any, retain_graph: bool
) -> tuple[Tensor | None, ...]:
    """Return the gradients for each element of the first dimension of the gradients to start from."""
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = next((gradient.shape[0] for gradient in given if gradient is not None), 0)
    if not count:
        raise ArgumentError("grad: is_grads_batched needs grad_outputs for at least one pass")
    return tuple(in_level(count, given, lambda part: passes(grad_outputs=part, retain_graph=retain_graph)))


def _adopt(gradients: Iterable[Tensor | None], shows_grad: bool) -> None:
    for gradient in gradients:
        if gradient is not None and gradient._is_tracked():
            duals.adopt(gradient, shows_grad)


def _ids(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([tensor._id for tensor in tensors])


def _optional_ids(tensors: Sequence[Tensor | None]) -> tuple[int | None, ...]:
    return tuple([None if tensor is None else tensor._id for tensor in tensors])


def _receivers(roots: list[Tensor], inputs: Any) -> Receivers | None:
    """Return the tensors that a pass gives a ``.grad``; None where it calls hooks or functions of the program."""
    if inputs is None:
        return gradient_receivers([root._gradient_edge() for root in roots])
    wanted = listed(inputs)
    if not wanted:
        raise AutogradError("`inputs` argument to `backward()` cannot be empty.")
    require_one_session("backward", roots[0], *wanted)
    reached = reachable([root._gradient_edge() for root in roots])
    for tensor in wanted:
        if not has_gradient(tensor):
            raise AutogradError(f"backward: {tensor._meta} among inputs does not require grad")
    tensors = [tensor for tensor in wanted if tensor._gradient_edge() in reached]
    stand_ins = [node for node in stand_ins_among(reached) if any(node.target is tensor for tensor in wanted)]
    if (tensors or stand_ins) and has_client_parts(reached):
        return None
    receiving, moved = [*tensors, *[node.held for node in stand_ins]], [one for one in tensors if is_moved(one)]
    return Receivers(receiving, not has_gradients(reached), stand_ins, moved)


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
