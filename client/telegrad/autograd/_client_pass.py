"""Backward passes that call hooks and functions of the client's program.

The server stops at these. The client walks through its own graph in the order in which the server does, takes the
gradients that have reached a stop, calls the hook or function with handles on them, and sends what that returned. All
of this is queued like any operation, and waits for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import set_grad_enabled
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import (
    ClientNode,
    ClientOutput,
    GradientEdge,
    LeafNode,
    Watched,
    has_gradients,
    stand_ins_among,
)
from telegrad._tensor.held_gradients import (
    key_of,
    leading_to,
    on_server,
    parents_counted,
    parents_of,
    reachable_in_pass,
)
from telegrad._tensor.hooks import NONE_REPLACED
from telegrad._tensor.receivers import moved_at, receivers_at
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import messages
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from ._gradients import (
    UNUSED,
    are_computed,
    dense_meta,
    describe,
    drop_unreached,
    gradient_meta,
    gradient_of,
    make_dense,
    new_gradient,
    settle,
    tell_forms,
)
from ._held_pass import dense, watched_at
from ._node_hooks import NodeHooks, Outputs, in_order, is_of_program, replacement
from .anomaly_mode import refuse_nan


class _Running(threading.local):
    """The pass whose hooks and functions are being called in a thread, the innermost of nested ones.

    ``hookless`` are the leaves whose hooks the next pass of the thread does not call.
    """

    innermost: ClientPass | None = None
    hookless: frozenset[GradientEdge] = frozenset()


running = _Running()


class ClientPass(NodeHooks):
    """One pass; ``inputs`` are the tensors whose gradients alone are computed, None where leaves accumulate theirs.

    With ``adds`` the gradients of ``inputs`` are accumulated, too, which the hooks of their nodes have a part in.
    """

    def __init__(
        self, roots: list[Tensor], gradients: list[Tensor | None], inputs: list[Tensor] | None, retain_graph: bool,
        create_graph: bool, adds: bool = True,
    ) -> None:  # fmt: skip
        pairs = list(zip(roots, gradients, strict=True))
        super().__init__(pairs)
        remote = [pair for pair in pairs if not pair[0]._session.holds_gradients]
        self._session = session = (remote[0][0] if remote else roots[0])._session
        self.at_end: list[Callable[[], None]] = []
        """Called once all hooks and functions of the pass have been called."""
        self.final: list[Callable[[], None]] = []
        """Called once the pass has accumulated its gradients."""
        self._inputs = inputs
        self._adds = adds
        self._hookless, running.hookless = running.hookless, frozenset()
        self._retain_graph, self._create_graph = retain_graph, create_graph
        self._number = session.new_id()
        self._site = session.sites.current()
        self._roots = [root._gradient_edge() for root in roots]
        self._lineage = [t._gradient_edge() for t in (*roots, *gradients) if t is not None and t._is_tracked()]
        self._nodes = nodes = reachable_in_pass(self._roots)
        self._on_server = on_server([root._gradient_edge() for root, _ in remote])
        self._targets = None if inputs is None else {tensor._gradient_edge() for tensor in inputs}
        self._leading = None if self._targets is None else leading_to(self._targets, nodes)
        self._counts = parents_counted(nodes)
        self._reached: dict[GradientEdge, None] = dict.fromkeys(self._roots)
        """Nodes that a gradient has flowed to, in a fixed order."""
        self._left_out: set[GradientEdge] = set()
        """What functions of the program gave no gradient, and what lies behind that."""
        self._arrived: dict[ClientNode, set[int]] = {}
        """The outputs of functions that a gradient has flowed to."""
        self.unhooked: dict[int, Tensor] = {}
        """The gradients that hooks of inputs were given, by the inputs' numbers, where they flow on to other inputs."""
        self._named: dict[int, Tensor] = {}
        """Leaves whose gradients have their ids already, by their identities: hooks may give them other numbers."""
        self._skipped: frozenset[int] = frozenset()
        """Numbers of stops that gradients do not flow to."""
        for node in nodes:
            leaf = node.tensor() if isinstance(node, LeafNode) else None
            if leaf is not None:
                make_dense(leaf)
        stops = [number for node in nodes for number in self._stops_at(node) if node in self._on_server]
        self._stops = frozenset(stops)
        targets = None
        if inputs is not None:
            known = [t for t in inputs if not t._session.holds_gradients]
            targets = tuple([t._id for t in known if t._gradient_edge() in nodes])
        self._computed = inputs and [t for t in inputs if t._gradient_edge() in nodes]
        session.submit(
            messages.BeginPass(
                self._number, self._site, tuple([root._id for root, _ in remote]),
                tuple([None if gradient is None else gradient._id for _, gradient in remote]), tuple(stops),
                targets, retain_graph, create_graph,
            ),
            thread.modes,
        )  # fmt: skip
        self._is_uncertain = has_gradients(nodes)
        """Whether only the server knows what the gradients reach."""
        if self._is_uncertain and stops:
            self._skipped = frozenset(stops) - frozenset(session.query("stops_reached", self._number))

    def __enter__(self) -> ClientPass:
        outer, running.innermost = running.innermost, self
        with set_grad_enabled(self._create_graph):
            try:
                for root, gradient in self._held_roots:
                    given = function("ones_like")(root) if gradient is None else gradient
                    self._hold(root._gradient_edge(), given)
                self._run()
                for callback in self.at_end:
                    callback()
            except BaseException:
                self._session.free(self._number)
                raise
            finally:
                running.innermost = outer
        return self

    @property
    def has_inputs(self) -> bool:
        """Whether the gradients of some tensors alone are computed."""
        return self._inputs is not None

    def computes(self, node: GradientEdge) -> bool:
        """Return whether the pass computes the gradient of what this node has computed."""
        if node not in self._nodes or (watched_at(node) and not self._watched_at(node)):
            return False  # the server knows of a place that is watched whether a gradient reaches it
        return self._runs(node) or (self._targets is not None and node in self._targets)

    def __exit__(self, kind: object, *_: object) -> None:
        self._session.free(self._number)
        if kind is None:
            for callback in self.final:
                callback()

    def accumulate(self) -> None:
        """Accumulate the gradients that the pass has computed."""
        if self._inputs is not None:
            receivers = [tensor for tensor in self._inputs if tensor._gradient_edge() in self._reached]
        else:
            receivers = [tensor for node in self._reached for tensor in receivers_at(node)]
            receivers = [tensor for tensor in receivers if id(tensor) not in self._named]
        if self._held:
            own = [leaf for leaf in receivers if leaf._session.holds_gradients]
            self._accumulate_held([*own, *dict.fromkeys(self._plain_leaves)])
            receivers = [leaf for leaf in receivers if not leaf._session.holds_gradients]
        leaves = [(leaf._id, gradient_of(leaf, self._create_graph)._id) for leaf in receivers]
        self._end(leaves, (), adds=True)
        if self._is_uncertain:
            drop_unreached(receivers)
            receivers = [leaf for leaf in receivers if leaf._grad is not None]
        tell_forms([leaf._grad for node in self._reached for leaf in moved_at(node)])
        if self._create_graph:
            self._describe([leaf._grad for leaf in receivers if leaf._grad is not None])
        if self._inputs is not None:
            for leaf in receivers:
                for watched in watched_at(leaf._gradient_edge()):
                    watched.call_after(leaf)
        settle(stand_ins_among(self._reached))

    def gradients(self, allow_unused: bool) -> list[Tensor | None]:
        """Return the gradients of the inputs, None for those that none has reached."""
        assert self._inputs is not None
        session = self._session
        used = [t._gradient_edge() in self._reached or self._holds_gradient_of(t) for t in self._inputs]
        if not all(used) and not (allow_unused or self.handed):
            raise AutogradError(UNUSED)
        results = [
            self._held.get(key_of(tensor._gradient_edge()))
            if self._holds_gradient_of(tensor)
            else new_gradient(session, gradient_meta(tensor)) if is_used else None
            for tensor, is_used in zip(self._inputs, used, strict=True)
        ]  # fmt: skip
        reachable_ones = {id(tensor) for tensor in self._computed or ()}
        outs = tuple(
            [
                None if result is None else result._id
                for tensor, result in zip(self._inputs, results, strict=True)
                if id(tensor) in reachable_ones and not self._holds_gradient_of(tensor)
            ]
        )
        self._end([], outs, adds=False)
        if self._is_uncertain:
            known = are_computed(results)
            if not all(known) and not allow_unused:
                raise AutogradError(UNUSED)
            results = [result if is_known else None for result, is_known in zip(results, known, strict=True)]
        if self._create_graph:
            self._describe([r for r in results if r is not None and not r._session.holds_gradients])
        return results

    def _end(self, leaves: list[tuple[int, int]], outs: tuple[int | None, ...], adds: bool) -> None:
        self._session.submit(messages.EndPass(self._number, self._site, leaves, outs, adds), thread.modes)

    def _describe(self, computed: list[Tensor]) -> None:
        if computed:
            describe(computed, tuple(self._lineage))

    def _runs(self, node: GradientEdge) -> bool:
        return self._leading is None or node in self._leading

    def _stops_at(self, node: GradientEdge) -> list[int]:
        """Return the numbers of the stops at a node, in the order in which they are dealt with."""
        runs = self._runs(node)
        numbers = []
        if runs or (self._targets is not None and node in self._targets):
            numbers = [watched.number for watched in self._watched_at(node)]
        if runs and isinstance(node, ClientNode) and node.number not in self._skipped:
            numbers.append(node.number)
        hooked = self._hooked_at(node) if runs else None
        if hooked is not None:
            numbers += [hooked.before, hooked.after] if hooked.posthooks else [hooked.before]
        return numbers

    def _watched_at(self, node: GradientEdge) -> list[Watched]:
        if node in self._hookless:
            return []
        return [watched for watched in watched_at(node) if watched.number not in self._skipped]

    def _run(self) -> None:
        """Walk through the graph from the roots, each node after all that gradients reach it from."""
        counts = self._counts
        ready = [node for node in dict.fromkeys(self._roots) if not counts.get(node)]
        stopped: list[tuple[float, int, GradientEdge]] = []
        order = count()
        outputs = Outputs(self._nodes)
        while ready or stopped:
            if ready:
                node = ready.pop()
                dealt_with = outputs.complete(node)
                for stop in [one for one in dealt_with if self._stops_at(one)]:
                    heappush(stopped, (-_age(stop), next(order), stop))
                if self._stops_at(node):
                    continue
                # What a gradient depends on may lie behind a function that the pass does not differentiate.
                flows: Sequence[GradientEdge] = parents_of(node) if node in self._reached and self._runs(node) else ()
            else:
                node = heappop(stopped)[2]
                flows = self._stop(node)
            if node in self._left_out:
                self._left_out.update(parents_of(node))
            for parent in flows:
                self._reached.setdefault(parent)
                if isinstance(node, ClientOutput):
                    self._arrived.setdefault(node.function, set()).add(node.index)
            complete: list[GradientEdge] = []
            for parent in parents_of(node):
                counts[parent] -= 1
                if not counts[parent]:
                    complete.append(parent)
            ready += in_order(node, complete)

    def _stop(self, node: GradientEdge) -> Sequence[GradientEdge]:
        """Call the hooks and the function of a node, and return the nodes that gradients flow to from it."""
        is_reached = node in self._reached
        for watched in self._watched_at(node):
            if is_reached and (node not in self._on_server or key_of(node) in self._held):
                self._call_hooks_of_held(node, watched)
            elif is_reached:
                self._call_hooks(node, watched)
            elif node in self._on_server:
                self._call_hooks_with_none(node, watched)
        if not self._runs(node):
            return ()
        if isinstance(node, ClientNode):
            return self._differentiate(node)
        hooked = self._hooked_at(node)
        if hooked is not None and node in self._on_server:
            self._call_node_hooks(hooked, is_reached, node in self._left_out)
        return node.parents if is_reached else ()

    def _call_hooks(self, node: GradientEdge, watched: Watched) -> None:
        given = None
        if hooks := watched.on_gradient if self._adds else [*watched.hooks.values()]:
            gradient = (taken := self._take(watched.number, [watched.meta])[0])
            if self._targets is not None and node in self._targets and self._runs(node):
                self.unhooked[watched.age] = taken
            for hook in hooks:
                result = hook(gradient)
                if result is not None:
                    gradient = replacement(hook, gradient, result)
            given = None if gradient is taken else (gradient,)
        leaf = node.tensor() if isinstance(node, LeafNode) and self._inputs is None and watched.after else None
        if leaf is None:
            self._give(watched.number, given)
            return
        self._accumulate(leaf, watched, given)
        tell_forms([moved._grad for moved in moved_at(node)])
        watched.call_after(leaf)

    def _call_hooks_with_none(self, node: GradientEdge, watched: Watched) -> None:
        """Pass by a place that no gradient has reached; call its hooks if a function of the program returned none."""
        is_left_out = node in self._left_out
        for hook in watched.on_gradient if is_left_out else ():
            if hook(None) is not None:
                raise AutogradError(NONE_REPLACED)
        self._give(watched.number, None)
        leaf = node.tensor() if isinstance(node, LeafNode) and is_left_out and self._inputs is None else None
        if leaf is not None:
            watched.call_after(leaf)

    def _accumulate(self, leaf: Tensor, watched: Watched, given: Sequence[Tensor] | None) -> None:
        """Have the gradient that has arrived added to that of a leaf whose hooks are called before the pass ends."""
        self._named[id(leaf)] = leaf
        gradient = gradient_of(leaf, self._create_graph)
        self._give(watched.number, given, ((leaf._id, gradient._id),))
        if self._create_graph:
            self._describe([gradient])

    def _differentiate(self, node: ClientNode) -> list[GradientEdge]:
        arrived: list[Meta | None] = [None] * len(node.metas)
        for output in self._arrived.get(node, ()):
            arrived[output] = node.metas[output]
        if node.held is not None or node not in self._on_server:
            return self._differentiate_held(node, arrived)
        gradients = self._take(node.number, arrived)
        results = node.context.differentiate(gradients)
        refuse_nan(node.name, results)
        if not self._retain_graph:
            node.release()
        pairs = [(edge, result) for result, edge in zip(results, node.edges, strict=True)]
        self._give(node.number, [None if edge is None else dense(result) for edge, result in pairs])
        if is_of_program(node) and not self._is_uncertain:
            self._left_out.update([edge for edge, result in pairs if result is None and edge is not None])
        return [edge for edge, result in pairs if result is not None and edge is not None]

    def _take(self, stop: int, metas: Sequence[Meta | None]) -> list[Any]:
        """Return handles on the gradients that have reached a stop; None where there is no meta."""
        session = self._session
        taken = [None if meta is None else new_gradient(session, dense_meta(meta)) for meta in metas]
        outs = tuple([None if gradient is None else gradient._id for gradient in taken])
        session.submit(messages.TakeGradients(self._number, self._site, stop, outs), thread.modes)
        if self._create_graph:
            self._describe([gradient for gradient in taken if gradient is not None])
        return taken

    def _give(
        self, stop: int, gradients: Sequence[Tensor | None] | None, leaves: tuple[tuple[int, int], ...] = ()
    ) -> None:
        ids = None
        if gradients is not None:
            ids = tuple([None if gradient is None else gradient._id for gradient in gradients])
            self._lineage.extend([t._gradient_edge() for t in gradients if t is not None and t._is_tracked()])
        self._session.submit(messages.GiveGradients(self._number, self._site, stop, ids, leaves), thread.modes)


def _age(node: GradientEdge) -> float:
    """Return a number that is larger for what is computed earlier in a pass."""
    if isinstance(node, LeafNode):
        return 1 << 62
    ages: list[float] = [watched.age for watched in watched_at(node)]
    if node.extras is not None and (hooked := node.extras.hooked()) is not None:
        ages.append(hooked.age)
    return max(ages) if ages else node.number if isinstance(node, ClientNode) else 0
