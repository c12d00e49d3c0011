"""How operations' saved tensors are kept while ``saved_tensors_hooks`` are in effect: as the program packs them.

The server hands over what an operation has saved and drops it; the operation's node in the client's graph keeps what
``pack_hook`` has made of it, and a pass stops there to give it back (``autograd._node_hooks``). Threads have a mode,
``packs``, while hooks are in effect, so that operations ask nothing here otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from telegrad._session.grad_mode import no_grad
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import Extras, NumberedNode, OperationName, OperationNode, PackedSaved
from telegrad._tensor.grad_fn import HANDLES, describe, meta_of
from telegrad._tensor.tensor import Tensor, new_tensor

Pair: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]]
_AT_ONCE: Final = 16
"""So many tensors are handed over in one round trip."""


class _SavedTensors(threading.local):
    """The hooks that are in effect in a thread, the innermost last; ``disabled`` says why none may be entered."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.disabled: str | None = None

    @property
    def innermost(self) -> Pair | None:
        """The functions that pack and unpack a tensor; None where there are none."""
        return self.pairs[-1] if self.pairs else None

    def enter(self, pair: Pair) -> None:
        """Let these functions pack and unpack what is saved from now on."""
        self.pairs.append(pair)
        thread.modes = thread.modes.but(packs=True)

    def leave(self) -> None:
        """End the innermost functions' effect."""
        self.pairs.pop()
        thread.modes = thread.modes.but(packs=bool(self.pairs))


saved_tensors = _SavedTensors()


def pack_saved(session: ClientSession, result: Any, name: str) -> None:
    """Pack what operation ``name`` has saved, whose results these are. One round trip, where it may have saved any."""
    results = result if isinstance(result, tuple) else (result,)
    tracked = next((tensor for tensor in results if isinstance(tensor, Tensor) and tensor._node is not None), None)
    pair = saved_tensors.innermost
    if tracked is None or pair is None or session.holds_gradients:
        return
    node = tracked._node
    if not isinstance(node, OperationNode) or node.name != name or not isinstance(node.name, OperationName):
        return
    made = NumberedNode(session, tracked._id)
    while True:
        ids = tuple([session.new_id() for _ in range(_AT_ONCE)])
        has_one_result = not isinstance(result, tuple)
        answer = session.query("pack_saved", made.before, made.after, tracked._id, node.name.op, has_one_result, ids)
        if answer is None:
            break
        describe(made, answer)
        if node.extras is None:
            node.extras = Extras()
        node.extras.numbered = made
        for id, described in zip(ids, answer[3], strict=False):
            made.packed.append(_packed(session, node, id, described, pair))
        if len(answer[3]) < _AT_ONCE:
            break


def pack_one(numbered: NumberedNode, node: OperationNode, name: str, place: int, pair: Pair) -> bool:
    """Pack one tensor that a node has saved; returns False where it has none, or that is packed. One round trip."""
    id = numbered.session.new_id()
    described = numbered.session.query("pack_one", numbered.before, name, place, id)
    if described is not None:
        if described[1] == "result":
            described[1] = ""  # PyTorch shows a result without history here
        numbered.packed.append(_packed(numbered.session, node, id, described, pair))
    return described is not None


def _packed(session: ClientSession, node: OperationNode, id: int, described: Any, pair: Pair) -> PackedSaved:
    """Call a ``pack_hook`` with the tensor of a number, which seems to have its history as long as that runs."""
    wire, history, name, place = described
    tensor = new_tensor(session, id, meta_of(wire))
    if history:
        tensor._requires_grad = True
        if history != "leaf":
            tensor._node = node if history == "result" or not node.parents else node.parents[0]
    try:
        with no_grad():
            return PackedSaved(name, place, pair[0](tensor), pair[1])
    finally:
        tensor._requires_grad, tensor._node = False, None


HANDLES.pack = pack_one
