"""The hooks of nodes of the server, within a backward pass of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import ClientNode, ClientOutput, GradientEdge, LeafNode, NumberedNode
from telegrad._tensor.hooks import run_hooks
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentTypeError, AutogradError
from telegrad_protocol.meta import Meta

from ._gradients import are_computed, dense_meta, new_gradient
from ._held_pass import HeldPass


class NodeHooks(HeldPass):
    """What a ``ClientPass`` does at nodes of built-in operations that have hooks."""

    _session: Any
    _number: int
    _site: int
    _skipped: frozenset[int]
    _stops: frozenset[int]
    _is_uncertain: bool
    _retain_graph: bool

    def _describe(self, computed: list[Tensor]) -> None:
        raise NotImplementedError

    def _hooked_at(self, node: GradientEdge) -> NumberedNode | None:
        hooked = node.extras.hooked() if node.extras is not None else None
        return None if hooked is None or hooked.before in self._skipped else hooked

    def _call_node_hooks(self, hooked: NumberedNode, is_reached: bool, is_left_out: bool) -> None:
        """Call the hooks of an operation's node, before it computes gradients and after it; give it what is packed.

        Where it is left out, they are called with None.
        """
        if hooked.packed and is_reached:
            self._give_packed(hooked)
        if not (hooked.prehooks or hooked.posthooks):
            self._give(hooked.before, None)
            return
        has_posthooks = hooked.after in self._stops
        arrived = self._take_some(hooked.before, hooked.outputs) if is_reached else [None] * len(hooked.outputs)
        is_reached = any(gradient is not None for gradient in arrived)
        shown = max([place + 1 for place, meta in enumerate(hooked.outputs) if meta is not None], default=0)
        given = run_hooks(hooked.prehooks, arrived[:shown]) if is_reached or is_left_out else []
        self._give(hooked.before, [*given, *arrived[shown:]] if is_reached and hooked.prehooks else None)
        if not has_posthooks:
            return
        if not is_reached:
            if is_left_out:
                run_hooks(hooked.posthooks, [None] * len(hooked.inputs), tuple(given))
            self._give(hooked.after, None)
            return
        inputs = self._take_some(hooked.after, hooked.inputs)
        replaced = run_hooks(hooked.posthooks, inputs, tuple(given))
        is_same = all(before is after for before, after in zip(inputs, replaced, strict=True))
        if any(before is not None and after is None for before, after in zip(inputs, replaced, strict=True)):
            self._is_uncertain = True
        self._give(hooked.after, None if is_same else replaced)

    def _give_packed(self, hooked: NumberedNode) -> None:
        """Unpack what an operation has saved and the program keeps, and give it to the node for this pass."""
        unpacked = [item.unpack() for item in hooked.packed]
        for tensor in unpacked:
            if not isinstance(tensor, Tensor):
                raise ArgumentTypeError(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                    f"{type(tensor).__name__}"
                )
        require_one_session("saved_tensors_hooks", *unpacked)
        self._session.query("give_saved", hooked.before, [tensor._id for tensor in unpacked])
        if not self._retain_graph:
            hooked.packed = []

    def _take_some(self, stop: int, metas: Sequence[Meta | None]) -> list[Any]:
        """Return handles on those gradients at a stop that there are. One round trip, if there may be several."""
        session = self._session
        taken = [None if meta is None else new_gradient(session, dense_meta(meta)) for meta in metas]
        outs = tuple([None if gradient is None else gradient._id for gradient in taken])
        session.submit(messages.TakeGradients(self._number, self._site, stop, outs), thread.modes)
        are_there = are_computed(taken)
        present = [gradient if is_there else None for gradient, is_there in zip(taken, are_there, strict=True)]
        if self._create_graph:
            self._describe([gradient for gradient in present if gradient is not None])
        return present


class Outputs:
    """The outputs of functions, of which none is dealt with before gradients have reached all of the same function."""

    def __init__(self, nodes: set[GradientEdge]) -> None:
        self._missing: dict[ClientNode, int] = {}
        self._waiting: dict[ClientNode, list[GradientEdge]] = {}
        for node in nodes:
            if isinstance(node, ClientOutput):
                self._missing[node.function] = self._missing.get(node.function, 0) + 1

    def complete(self, node: GradientEdge) -> list[GradientEdge]:
        """Note that all gradients of a node have arrived, and return the nodes that can be dealt with because of it."""
        if not isinstance(node, ClientOutput):
            return [node]
        function = node.function
        self._missing[function] -= 1
        waiting = self._waiting.setdefault(function, [])
        waiting.append(node)
        return [] if self._missing[function] else self._waiting.pop(function)


def replacement(hook: Callable[..., Any], gradient: Any, result: Any) -> Any:
    """Return the gradient that a hook has returned in place of another; it must have the type and shape of that."""
    if not isinstance(result, Tensor):
        raise ArgumentTypeError(f"expected Variable, but hook returned {type(result).__name__!r}")
    given, returned = gradient._meta, result._meta
    name = repr(getattr(hook, "__name__", "<unknown>"))
    if returned.dtype is not given.dtype or returned.device != given.device:
        kinds = f"was {gradient.type()} got {result.type()}"
        raise AutogradError(f"hook {name} has changed the type of value ({kinds})")
    if returned.shape != given.shape:
        raise AutogradError(f"hook {name} has changed the size of value")
    return result


def is_of_program(node: ClientNode) -> bool:
    """Tell whether a function is the program's own, or stands for one, and is nothing that telegrad is made of."""
    owner = getattr(node.context, "_owner", None)
    if owner is None:
        return False
    return not owner.__module__.startswith("telegrad.") or getattr(owner, "_stands_for_programs", False)


def in_order(node: GradientEdge, complete: list[GradientEdge]) -> list[GradientEdge]:
    """Return what all gradients have reached once a node was dealt with, in the order in which it is not dealt with.

    As in PyTorch, leaves come before all else, in the order of the operands; of ``linear``, the bias comes first.
    """
    leaves = [one for one in complete if isinstance(one, LeafNode)]
    if leaves and getattr(getattr(node, "name", None), "op", None) == "linear":
        leaves.insert(0, leaves.pop())
    return [*(one for one in complete if not isinstance(one, LeafNode)), *reversed(leaves)]
