"""Calls that write into their operands: what they may not write into, and the history of what they have written."""

from __future__ import annotations

from typing import Any

from telegrad._session.catching.prompt_errors import PATIENTLY, wait_where_caught
from telegrad._session.grad_mode import no_grad
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import Modes
from telegrad._tensor.autograd_graph import GradientEdge, OperationNode, hand_over, new_node
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

from .batching import batching
from .call_pattern import CallPattern
from .call_plan import CallPlan
from .duals import duals
from .operand_classes import without_modes
from .outputs import check_separate, check_writable
from .sharing import keep_saved, sharing


def mutate(
    pattern: CallPattern, plan: CallPlan, session: ClientSession, values: tuple[Any, ...], wire: list[Any],
    parents: list[GradientEdge], modes: Modes,
) -> Any:  # fmt: skip
    """Run a call that writes into operands, and return these."""
    op = plan.op
    targets: list[Any] = [None if pattern.sources[p] is None else values[pattern.sources[p]] for p in op.mutates]  # type: ignore[index]
    if modes.records and not op.updates:
        for target in targets:
            for tensor in target if isinstance(target, (tuple, list)) else (target,):
                if tensor is not None and (
                    tensor._requires_grad or tensor._aliases is not None or tensor._is_inference
                ):
                    check_writable(op, tensor)
        if parents and op.form == "out":
            raise AutogradError(
                f"{op.public}(): functions with out=... arguments don't support automatic differentiation, but one of "
                "the arguments requires grad. Use no_grad()"
            )
    if plan.keeps_apart and targets[0]._aliases is not None:
        check_separate(op.public, targets, values, wholly=False)
    if sharing.keeps_saved:
        keep_saved(session, targets)
    session.call(op.index, session.sites.current(4), (), wire, modes)
    if plan.late_error or (modes.records and any([_is_tracked_view(target, parents) for target in targets])):
        wait_where_caught(session, plan.late_error or PATIENTLY)
    if parents and plan.differentiable and isinstance(targets[0], Tensor) and targets[0].dtype.is_differentiable:
        _rebase(targets[0], new_node(parents, plan.grad_name))
    return None if plan.outs is None else plan.result_type(targets) if plan.is_tuple else targets[0]


def note_change(tensor: Tensor) -> None:
    """Count one more modification of a tensor's memory, none of whose elements is another; modes see nothing of it."""
    if batching.levels or duals.levels:
        return  # a function that is mapped or differentiated works on tensors of its own
    with no_grad(), without_modes():
        tensor.detach().as_strided((0,), (1,)).zero_()


def _is_tracked_view(target: Any, parents: list[GradientEdge]) -> bool:
    """Tell whether a target is a view that has a gradient or gets one: only the server knows if it may be modified."""
    return (
        isinstance(target, Tensor)
        and target._base is not None
        and bool(parents or target._requires_grad or target._base._requires_grad)
    )


def _rebase(target: Tensor, node: OperationNode) -> None:
    """Let gradients of ``target``, and of everything that shares its memory, flow to ``node``, which wrote into it."""
    root = target._base
    if root is not None:
        node.parents = _through_root(root, target, node.parents)
        slices = OperationNode((node,), "torch::autograd::CopySlices")
        hand_over(root, slices)
        node = OperationNode((slices,), "AsStridedBackward0")
    hand_over(target, node)
    aliases = target._aliases
    if aliases is None:
        return
    aliases.version += 1
    target._seen = aliases.version
    if root is None:
        aliases.node = OperationNode((node,), "AsStridedBackward0")
    else:
        aliases.node, root._seen = node, aliases.version


def _through_root(root: Tensor, target: Tensor, parents: tuple[GradientEdge, ...]) -> tuple[GradientEdge, ...]:
    """Return where gradients flow from a write into a view: into the root and the other operands, not into the view."""
    others = list(parents)
    if target._node in others:
        others.remove(target._node)
    return (*others, root._gradient_edge()) if root._is_tracked() else tuple(others)
