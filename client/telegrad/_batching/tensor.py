"""``BatchedTensor``: one element of a batch to the program, and the whole batch to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from telegrad._ops.batching import batching
from telegrad._ops.overriding import disabled_torch_function
from telegrad._tensor.autograd_graph import GradientEdge
from telegrad._tensor.grad_fn import GradFn
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta


def _refuse(what: str) -> NoReturn:
    raise AutogradError(
        f"vmap: It looks like you're calling {what} on a Tensor. We don't support vmap over calling {what} on a "
        "Tensor, please try to rewrite what you're doing with other operations."
    )


class BatchedTensor(Tensor):
    """A tensor in a level of ``vmap``; ``_physical`` has the batch in its first dimension.

    Its shape, type and gradient are those of one element. The physical tensor may be a batched one of an outer level.
    """

    __slots__ = ("_level", "_physical")

    _parts_of_views = ("_physical", "_meta")
    __torch_function__: Any = classmethod(disabled_torch_function)

    def __init__(self, level: int, physical: Tensor) -> None:
        meta = physical._meta
        self._level = level
        self._physical = physical
        self._session = physical._session
        self._meta = Meta.of(meta.shape[1:], meta.dtype, meta.device, meta.strides[1:], meta.offset)
        self._base = self._aliases = None
        self._seen = 0

    def __del__(self) -> None:
        """Do nothing: it has no number on the server."""

    @property
    def _id(self) -> int:  # type: ignore[override]
        raise AutogradError(
            "vmap: this needs the elements of a tensor, and in a function that is mapped over a batch there is one "
            "such tensor for each element; return it from the function, and use it outside of vmap"
        )

    @property
    def _requires_grad(self) -> bool:  # type: ignore[override]
        return self._physical._is_tracked()

    @property
    def _node(self) -> GradientEdge | None:  # type: ignore[override]
        return self._physical._gradient_edge() if self._physical._is_tracked() else None

    @property
    def _grad(self) -> Tensor | None:  # type: ignore[override]
        gradient = self._physical._grad
        return None if gradient is None else BatchedTensor(self._level, gradient)

    @property
    def _is_inference(self) -> bool:  # type: ignore[override]
        return self._physical._is_inference

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into this tensor."""
        return self._physical.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._physical.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients flow into this tensor."""
        self._physical.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require grad."""
        return self._physical.is_leaf

    @property
    def grad_fn(self) -> GradFn | None:
        """The operation that computed the batch; None where it does not require grad."""
        return self._physical.grad_fn

    def _gradient_edge(self) -> GradientEdge:
        return self._physical._gradient_edge()

    def _refresh(self) -> bool:
        return self._physical._refresh()

    @property
    def _version(self) -> int:
        return self._physical._version

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call ``hook(grad)`` with the gradient of one element; what it returns replaces the gradient."""

        def run(gradient: Tensor) -> Any:
            replaced = hook(BatchedTensor(self._level, gradient))
            return None if replaced is None else physical_at(replaced, self._level, gradient.shape[0])

        return self._physical.register_hook(run)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise AutogradError: ``vmap`` has ``func.grad`` for this."""
        raise AutogradError(
            "backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
            "functorch.vjp instead or call backward() outside of functorch transforms."
        )

    def item(self) -> Any:
        """Raise AutogradError: there is one number for each element of the batch."""
        _refuse(".item()")

    def tolist(self) -> Any:
        """Raise AutogradError: there is one list for each element of the batch."""
        _refuse(".tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        """Raise AutogradError: there is one array for each element of the batch."""
        _refuse(".numpy()")

    def __bool__(self) -> bool:
        raise AutogradError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
            "support that yet; use torch.where to choose between results."
        )

    def __repr__(self, **_: Any) -> str:
        lines = repr(self._physical).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={self._level}, bdim=0, value=\n    {lines}\n)"

    def __format__(self, spec: str) -> str:
        return repr(self)


def innermost_of(values: Iterable[Any]) -> int:
    """Return the number of the innermost level that tensors among values are batched at; 0 for plain tensors."""
    return max([t._level for t in tensors_in(values) if t.__class__ is BatchedTensor], default=0)


def size_at(level: int) -> int:
    """Return the size of the batch of a level."""
    return batching.levels[level - 1].size


def physical_at(tensor: Tensor, level: int, size: int) -> Tensor:
    """Return a tensor with the batch of a level as its first dimension, expanded where it is not batched there."""
    if not isinstance(tensor, BatchedTensor) or tensor._level < level:
        return tensor.unsqueeze(0).expand(size, *tensor.shape)
    if tensor._level == level:
        return tensor._physical
    inner = physical_at(tensor._physical, level, size)
    return BatchedTensor(tensor._level, inner.movedim(1, 0))


def batched_at(tensor: Tensor, level: int) -> Tensor:
    """Return a tensor whose first dimension becomes the batch of a level, which may lie outside of its own levels."""
    if not isinstance(tensor, BatchedTensor) or tensor._level < level:
        return BatchedTensor(level, tensor)
    return BatchedTensor(tensor._level, batched_at(tensor._physical.movedim(1, 0), level))


def is_batched_at(tensor: Any, level: int) -> bool:
    """Return whether a tensor, or a physical tensor in it, is batched at a level."""
    while isinstance(tensor, BatchedTensor):
        if tensor._level == level:
            return True
        tensor = tensor._physical
    return False


def batched_everywhere(tensor: Tensor) -> Tensor:
    """Return a tensor that is batched at every level of the thread, as what is differentiated by has to be."""
    for number, level in enumerate(batching.levels, 1):
        if not is_batched_at(tensor, number):
            tensor = batched_at(physical_at(tensor, number, level.size), number)
    return tensor


def levels_of(tensor: Tensor) -> list[int]:
    """Return the levels at which a tensor is batched, the innermost first."""
    levels = []
    while isinstance(tensor, BatchedTensor):
        levels.append(tensor._level)
        tensor = tensor._physical
    return levels


def plain(tensor: Tensor) -> Tensor:
    """Return the tensor on the server behind a batched one, with the batches of its levels as first dimensions."""
    while isinstance(tensor, BatchedTensor):
        tensor = tensor._physical
    return tensor


def wrapped(tensor: Tensor, levels: list[int]) -> Tensor:
    """Return a tensor whose first dimensions are the batches of these levels, which begin with the innermost."""
    for level in reversed(levels):
        tensor = BatchedTensor(level, tensor)
    return tensor


def plain_at(tensor: Tensor, levels: list[int]) -> Tensor:
    """Return a tensor with the batches of these levels as its first dimensions, which may be batched at others still.

    The levels begin with the innermost, whose batch is the last of these dimensions.
    """
    for level in levels:
        tensor = physical_at(tensor, level, size_at(level))
    return tensor


def rebatched(tensor: Tensor, levels: list[int]) -> Tensor:
    """Return a tensor whose first dimensions become the batches of these levels, as ``plain_at`` has made them."""
    for level in reversed(levels):
        tensor = batched_at(tensor, level)
    return tensor
