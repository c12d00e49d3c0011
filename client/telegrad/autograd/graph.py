"""The backward graph as a program sees it: nodes, edges, hooks of several gradients, and how saved tensors are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from telegrad._ops.mutation import note_change
from telegrad._ops.packing import saved_tensors
from telegrad._ops.sharing import sharing
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.grad_fn import GradFn as Node
from telegrad._tensor.grad_fn import shown_node
from telegrad._tensor.hooks import RemovableHandle
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, AutogradError

from ._client_pass import running
from ._levels import tracked_alias
from .function import Function

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version",
    "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
    "set_override_stale_capture_stream", "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip


class _Edge(NamedTuple):
    node: Node
    output_nr: int
    ownership_token: Any


class GradientEdge(_Edge):
    """A node and the number of the output that a gradient is of; ``ownership_token`` is a tensor that it is of."""

    __slots__ = ()

    def __new__(cls, node: Node, output_nr: int, ownership_token: Any = None) -> GradientEdge:
        if ownership_token is None and (tensor := node._shown_by()) is not None:
            ownership_token = _kept(tensor)
        return super().__new__(cls, node, output_nr, ownership_token)


def _kept(tensor: Tensor) -> Tensor:
    """Return a tensor that has a tensor's place in the graph, whatever becomes of that one."""
    return tensor if tensor.is_leaf else tracked_alias(tensor)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return where the gradient of a tensor flows to."""
    if not tensor.requires_grad:
        raise AutogradError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    edge = tensor._gradient_edge()
    return GradientEdge(shown_node(edge, tensor), tensor.output_nr, _kept(tensor))


class saved_tensors_hooks:
    """Keep each tensor that is saved for backward passes in this block as what ``pack_hook`` returns of it.

    ``unpack_hook`` returns the tensor again when a pass needs it, or ``saved_tensors`` is read. An operation in the
    block waits for the server, once, to be handed what it has saved; so does a pass at each such operation. In-place
    operations on views, and derivatives that are recorded themselves (``create_graph``), save as they do elsewhere.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if saved_tensors.disabled is not None:
            raise AutogradError(saved_tensors.disabled)
        saved_tensors.enter((self.pack_hook, self.unpack_hook))

    def __exit__(self, *args: object) -> None:
        saved_tensors.leave()


class save_on_cpu(saved_tensors_hooks):
    """Keep what is saved for backward passes in this block on the server's CPU until a pass needs it."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            return tensor.device, tensor.cpu()

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Refuse ``saved_tensors_hooks`` in this block, with this message."""
    before, saved_tensors.disabled = saved_tensors.disabled, error_message
    try:
        if saved_tensors.pairs:
            raise AutogradError(error_message)
        yield
    finally:
        saved_tensors.disabled = before


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note that tensors were modified in place, so that a pass which needs what they were refuses to use them."""
    for changed in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        note_change(changed)


def region_activation_memory_budget(budget: float) -> contextlib.AbstractContextManager[None]:
    """Check the share; it changes nothing in this block: the budget is one of PyTorch's compiler."""
    if not 0 <= budget <= 1:
        raise ArgumentError(f"region_activation_memory_budget: budget must be between 0 and 1, not {budget}")
    return contextlib.nullcontext()


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Do nothing: which streams a capture takes in is decided by the server."""


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Do nothing: the server orders streams where a gradient is accumulated, so that there is nothing to warn of."""


class _Handles(RemovableHandle):
    """The handle of a hook that stands on several tensors: removing it takes it from all of them."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


class _Mutations:
    """What ``allow_mutation_on_saved_tensors`` yields."""

    def clear(self) -> None:
        """Do nothing: copies of saved tensors belong to the graph, and are freed with it."""


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Mutations]:
    """Let operations of this thread modify in place what a later backward pass needs: it is copied before.

    Each such operation in the block waits for the server. Raises AutogradError in such a block.
    """
    if sharing.keeps_saved:
        raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
    sharing.keeps_saved = True
    try:
        yield _Mutations()
    finally:
        sharing.keeps_saved = False


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Any, *, mode: str = "all") -> RemovableHandle:
    """Call ``fn`` in a pass once all gradients of ``tensors`` that it computes are there; with ``any``, at the first.

    For ``all`` it gets a list with the gradients, None for tensors that the pass does not reach.
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    arrived: dict[int, Any] = {}
    latest: list[Any] = [None]
    edges = [tensor._gradient_edge() for tensor in tensors]

    def call() -> None:
        """Call it once in a pass: where not all have arrived that might have, when the pass has called all else."""
        if arrived:
            gradients = [arrived.get(number) for number in range(len(edges))]
            arrived.clear()
            fn(gradients)

    def hook(place: int, gradient: Tensor) -> None:
        current = running.innermost
        if is_first := latest[0] is not current:
            latest[0] = current
            arrived.clear()
        if mode == "any":
            if is_first:
                fn(gradient)
            return
        arrived[place] = gradient
        if is_first and current is not None:
            current.at_end.append(call)
        if len(arrived) == sum([current is not None and current.computes(edge) for edge in edges]):
            call()

    return _Handles([tensor.register_hook(partial(hook, place)) for place, tensor in enumerate(tensors)])


class _ReplacedElements(Function):
    """Gives a result other elements; the gradient of these is that of the result."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, elements: list[Tensor]) -> Tensor:
        return elements[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _with_elements(result: Tensor, elements: Tensor) -> Tensor:
    """Return a tensor without history of its own, with that of ``result``, also where nothing is recorded.

    Hooks that the result had before are called after those that it gets later.
    """
    with enable_grad():
        made: Tensor = _ReplacedElements.apply(result, [elements])
    return made
