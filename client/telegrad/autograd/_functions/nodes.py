"""The nodes of functions of the program: which tensors they are the history of, here and on the server."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from telegrad._ops.functions import function
from telegrad._session.grad_mode import is_grad_enabled, no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import ClientNode, ClientOutput, share_history
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import messages
from telegrad_protocol.meta import Meta

from .._composed_operands import has_composed


def attach(
    node: ClientNode, outputs: dict[int, Tensor], inputs: tuple[int | None, ...] = (), modified: tuple[int, ...] = (),
    saved: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """Make a node of the program the history of these results, by their places among all of them."""
    ids = ids_of([outputs.get(place) for place in range(len(node.metas))])
    if node.held is None or node.held.is_remote:
        node.session.submit(messages.ClientNode(node.number, inputs, ids, modified, saved), thread.modes)
    for place, tensor in outputs.items():
        share_history(tensor, ClientOutput(node, place), place in modified)


def ids_of(tensors: Sequence[Tensor | None]) -> tuple[int | None, ...]:
    """Return the numbers by which the server knows tensors; None for those that it does not know, as sparse ones."""
    unknown = [t is None or t._session.holds_gradients or has_composed([t]) for t in tensors]
    return tuple([None if no else t._id for t, no in zip(tensors, unknown, strict=True)])  # type: ignore[union-attr]


def root_of(tensor: Tensor) -> Tensor:
    """Return the tensor that this is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base


def zeros_of(meta: Meta) -> Tensor:
    """Return a tensor of zeros with the shape, type and device of a gradient that is missing."""
    zeros: Tensor = function("zeros")(meta.shape, dtype=meta.dtype, device=meta.device)
    return zeros


class SavedResult:
    """A result that was saved: it must not hold the node that holds it."""

    def __init__(self, alias: Tensor, node: ClientNode, output: int) -> None:
        self._alias = alias
        self._node = ref(node)
        self._output = output

    def unpack(self) -> Tensor:
        """Return the result again, with its place in the graph."""
        node = self._node()
        with no_grad():
            tensor: Tensor = self._alias.detach()
        if node is not None and is_grad_enabled():
            attach(node, {self._output: tensor})
        return tensor
