"""One call of an operation with batched operands, as rules see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op


class Operand:
    """A tensor among the arguments: ``tensor`` has the batch as its first dimension where ``is_batched``.

    ``ndim`` and ``shape`` are those of one element of the batch.
    """

    __slots__ = ("is_batched", "meta", "ndim", "shape", "size", "tensor")

    def __init__(self, tensor: Tensor, meta: Meta, is_batched: bool, size: int) -> None:
        self.tensor = tensor
        self.meta = meta
        self.is_batched = is_batched
        self.size = size
        self.shape = tuple(meta.shape)
        self.ndim = len(self.shape)

    @property
    def front(self) -> Tensor:
        """The tensor with the batch as its first dimension, expanded where all elements share it."""
        if self.is_batched:
            return self.tensor
        return self.tensor.unsqueeze(0).expand(self.size, *self.shape)

    def lifted(self, ndim: int) -> Tensor:
        """Return a tensor that broadcasts with others of a batch whose elements have ``ndim`` dimensions."""
        if not self.is_batched or self.ndim >= ndim:
            return self.tensor
        return self.tensor.reshape(self.size, *(1,) * (ndim - self.ndim), *self.shape)

    def padded(self, ndim: int, core: int = 0) -> Tensor:
        """Return ``front`` with dimensions of size 1 so that an element has ``ndim``, the last ``core`` in place."""
        tensor = self.front
        if self.ndim >= ndim:
            return tensor
        kept = self.ndim - core
        shape = (self.size, *(1,) * (ndim - self.ndim), *self.shape[:kept], *self.shape[kept:])
        return tensor.reshape(shape)


class Case:
    """A call: the operation, its arguments in declared order with ``Operand`` for tensors, and the size of the batch.

    ``outs`` are the metas of the results for one element of the batch. ``name`` is what is called for the whole batch:
    that of the in-place form where the call is one.
    """

    __slots__ = ("args", "name", "op", "outs", "size")

    def __init__(self, op: Op, args: Sequence[Any], size: int, outs: Sequence[Meta]) -> None:
        self.op = op
        self.name = op.public
        self.args = list(args)
        self.size = size
        self.outs = outs

    def call(self, *args: Any) -> Any:
        """Call the operation on physical arguments in declared order."""
        op = self.op
        positional = args[: op.positional]
        named = {p.name: v for p, v in zip(op.params[op.positional :], args[op.positional :], strict=False)}
        return function(self.name)(*positional, **named)

    def named(self, name: str) -> Any:
        """Return the argument of a parameter."""
        return self.args[[param.name for param in self.op.params].index(name)]

    def operands(self) -> list[Operand]:
        """Return all tensors among the arguments, in order, those in lists too."""
        listed: list[Operand] = []
        for value in self.args:
            listed += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Operand)]
        return listed

    def shaped(self, result: Any) -> Any:
        """Return results in the shapes that they have for one element of the batch."""
        if isinstance(result, Tensor):
            return result.reshape(self.size, *self.outs[0].shape)
        parts = [r.reshape(self.size, *out.shape) for r, out in zip(result, self.outs, strict=True)]
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)


Rule = Callable[[Case], Any]
"""Computes the results of a call for the whole batch; they have it as their first dimension."""
RULES: Final[dict[str, Rule]] = {}
"""By public name of the operation."""
DIRECT: Final[set[str]] = set()
"""Operations whose rule calls the operation itself on the first operand as it is, so that it serves in place too."""


def rule(*names: str, is_direct: bool = False) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these operations."""

    def register(run: Rule) -> Rule:
        enter(run, names, is_direct)
        return run

    return register


def enter(run: Rule, names: Sequence[str], is_direct: bool = False) -> None:
    """Register a rule for these operations."""
    for name in names:
        RULES[name] = run
    if is_direct:
        DIRECT.update(names)


def dim_of(dim: int, ndim: int) -> int:
    """Return the physical dimension of a dimension of one element, which may be counted from the end."""
    return (dim + ndim if dim < 0 else dim) + 1
