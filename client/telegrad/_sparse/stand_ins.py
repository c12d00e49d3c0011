"""Sparse gradients of dense tables: what ``sparse=True`` of embeddings asks for.

The rows that are looked up get a *stand-in*: a leaf of their shape that takes no memory, to which their gradient flows
in place of the table. After a pass, the stand-in's gradient becomes the values of the table's sparse gradient.
"""

from __future__ import annotations

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import StandInNode
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError, NotSupportedError

from .methods import ENTERED
from .tensor import SparseTensor

_ = ENTERED


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None, by_frequency: bool) -> Tensor:
    """Look rows up whose gradient is sparse where ``weight`` is a leaf; that of other tensors is dense."""
    if not (weight.requires_grad and weight.is_leaf and thread.modes.records):
        return function("embedding")(input, weight, padding_idx, None, 2.0, by_frequency)  # type: ignore[no-any-return]
    if by_frequency:
        raise NotSupportedError("embedding: scale_grad_by_freq is not supported with sparse gradients")
    rows: Tensor = function("embedding")(input, weight.detach())
    stand_in = function("empty")((), dtype=rows.dtype, device=rows.device).expand(rows.shape).detach()
    stand_in.requires_grad_()
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    stand_in._node = StandInNode(stand_in, weight, _Lookup(input, weight, padding).settle)
    function("_with_gradient_of_")(rows, stand_in)
    rows._node.name = "EmbeddingBackward0"  # type: ignore[union-attr]
    stand_in._node = None  # the node holds the stand-in, and not the other way round
    return rows


class _Lookup:
    """The indices of one look-up in a table, and what they make of the gradient of the rows."""

    def __init__(self, input: Tensor, weight: Tensor, padding: int | None) -> None:
        self._input, self._weight, self._padding = input, weight, padding

    def gradient(self, rows: Tensor) -> SparseTensor:
        """Return the sparse gradient of the table, uncoalesced, without the padding row."""
        places = self._input.detach().reshape(-1).long()
        values = rows.reshape(places.shape[0], self._weight.shape[1])
        if self._padding is not None:
            kept = (places != self._padding).nonzero().squeeze(1)
            places, values = places[kept], values[kept]
        return SparseTensor(sparse_coo, (places.unsqueeze(0), values), self._weight.shape)

    def settle(self, rows: Tensor, adds: bool) -> SparseTensor:
        """Return the gradient of the table; add it to the table's ``.grad``, and call its hooks, where ``adds``."""
        gradient = self.gradient(rows)
        return accumulate(self._weight, gradient) if adds else gradient


def accumulate(leaf: Tensor, gradient: SparseTensor) -> SparseTensor:
    """Call the hooks of a leaf with a sparse gradient, and add it to what the leaf has."""
    node = leaf._gradient_edge()
    watched = node.extras.active() if node.extras is not None else []
    for hook in [hook for place in watched for hook in place.on_gradient]:
        replaced = hook(gradient)
        if replaced is not None:
            gradient = replaced
    if not isinstance(gradient, SparseTensor):
        raise AutogradError("hook: what replaces the sparse gradient of a table must be sparse too")
    before = leaf._grad
    if before is None:
        leaf._grad = gradient
    elif isinstance(before, SparseTensor):
        leaf._grad = before + gradient
    else:
        with no_grad():
            before.add_(gradient)
    for hook in [hook for place in watched for hook in place.after.values()]:
        hook(leaf)
    return gradient
