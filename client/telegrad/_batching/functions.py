"""Functions of the program, ``autograd.Function``, whose ``forward`` and ``backward`` are run on batched tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._ops.batching import Level, batching, entered
from telegrad._tensor.tensor import Tensor
from telegrad.autograd.function import Function
from telegrad_protocol.errors import AutogradError

from .tensor import BatchedTensor, innermost_of, physical_at
from .user_rules import by_rule


def _check_mappable(owner: type[Function]) -> None:
    """Raise AutogradError for a function that cannot be mapped, or says twice how it is."""
    if owner.setup_context is Function.setup_context:
        raise AutogradError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            "override the setup_context staticmethod."
        )
    has_rule = owner.vmap is not Function.vmap
    if owner.generate_vmap_rule and has_rule:
        raise AutogradError(
            f"{owner.__name__} has generate_vmap_rule=True, but it also overrides the vmap staticmethod. Please set "
            "generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid ambiguity."
        )
    if not owner.generate_vmap_rule and not has_rule:
        raise AutogradError(
            f"You tried to vmap over {owner.__name__}, but it does not have vmap support. Please override and "
            "implement the vmap staticmethod or set generate_vmap_rule=True."
        )


class _Context:
    """What the program's functions get as ``ctx``: any attributes, and what they save."""

    materialize_grads = True
    needs_input_grad: tuple[bool, ...] = ()
    saved_tensors: tuple[Any, ...] = ()
    _saved: Sequence[Any] = ()
    _non_differentiable: Sequence[Any] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for ``backward``."""
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Do nothing: tangents follow from ``backward``."""

    def mark_non_differentiable(self, *args: Any) -> None:
        """Note that these results have no gradient."""
        self._non_differentiable = args

    def mark_dirty(self, *args: Any) -> None:
        """Raise AutogradError: a batch cannot be modified in place by a function of the program."""
        raise AutogradError("mark_dirty: not supported under vmap; return a new tensor instead")

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether ``backward`` gets zeros, or else None, for results that no gradient has reached."""
        self.materialize_grads = value


class BatchedCall:
    """One call of a function with batched arguments; the batches are saved as they are on the server."""

    def __init__(self, owner: Any, args: tuple[Any, ...], number: int) -> None:
        self.owner = owner
        self.ctx = _Context()
        self.level = batching.levels[number - 1]
        self.number = number
        self.is_batched = [isinstance(a, BatchedTensor) and a._level == number for a in args]
        self.physical = [a._physical if flag else a for a, flag in zip(args, self.is_batched, strict=True)]
        self._sizes = [a.shape if isinstance(a, Tensor) else None for a in args]
        self.ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a._is_tracked() for a in args])
        self.constants: list[Tensor] = []
        self.is_tuple = False
        self._saved: list[Any] = []
        self._saved_batched: list[bool] = []
        self._outs_batched: list[bool] = []

    def forward(self, physical: Sequence[Any]) -> Any:
        """Run ``forward`` or ``vmap``, and ``setup_context``; return the results as they are on the server."""
        owner = self.owner
        given = tuple([self._here(v, flag, self.number) for v, flag in zip(physical, self.is_batched, strict=True)])
        output = owner.forward(*given) if owner.generate_vmap_rule else by_rule(owner.vmap, given, {})
        owner.setup_context(self.ctx, given, output)
        self.is_tuple = isinstance(output, tuple)
        outputs = list(output) if self.is_tuple else [output]
        self._outs_batched = [self._is_here(out) for out in outputs]
        results = [self._plain(out) for out in outputs]
        self.constants = [
            result
            for out, result in zip(outputs, results, strict=True)
            if any([out is other for other in self.ctx._non_differentiable])
        ]
        self._saved_batched = [self._is_here(value) for value in self.ctx._saved]
        self._saved = [self._plain(value) for value in self.ctx._saved]
        self.ctx._saved = ()
        return tuple(results) if self.is_tuple else results[0]

    def take_saved(self) -> list[Any]:
        """Return what was saved, which the caller keeps from here on."""
        saved, self._saved = self._saved, []
        return saved

    def finish(self, results: Any) -> Any:
        """Return the results in the level."""
        listed = list(results) if self.is_tuple else [results]
        made = [self._here(v, flag, self.number) for v, flag in zip(listed, self._outs_batched, strict=True)]
        return tuple(made) if self.is_tuple else made[0]

    def backward(self, saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients of all arguments: of those that the batch shares, the sum over it."""
        level = Level(self.level.size, self.level.randomness, batching.derivatives)
        with entered(level) as number:
            self.ctx.saved_tensors = tuple(
                [self._here(v, flag, number) for v, flag in zip(saved, self._saved_batched, strict=True)]
            )
            given = [self._here(g, flag, number) for g, flag in zip(gradients, self._outs_batched, strict=True)]
            results = self.owner._backward_of()(self.ctx, *given)
            listed = results if isinstance(results, (tuple, list)) else (results,)
            found = [
                self._gradient(gradient, size, flag, number)
                for gradient, size, flag in zip(listed, self._sizes, self.is_batched, strict=False)
            ]
        self.ctx.saved_tensors = ()
        return [*found, *[None] * (len(self.is_batched) - len(found))]

    def _gradient(self, gradient: Any, size: Any, is_batched: bool, number: int) -> Any:
        """Return the gradient of one argument: what broadcasting has repeated is summed, as without a batch."""
        if gradient is None:
            return None
        if size is not None and gradient.shape != size:
            gradient = gradient.sum_to_size(size)
        whole = physical_at(gradient, number, self.level.size)
        return whole if is_batched else whole.sum(0)

    def _is_here(self, value: Any) -> bool:
        return isinstance(value, BatchedTensor) and value._level == self.number

    def _plain(self, value: Any) -> Any:
        return value._physical if self._is_here(value) else value

    def _here(self, value: Any, is_batched: bool, number: int) -> Any:
        return BatchedTensor(number, value) if is_batched and value is not None else value


class _OfBatch(Function):
    """A function of the program that is applied to whole batches; ``call`` knows which, and what it saves."""

    _has_no_jvp = False

    @staticmethod
    def forward(ctx: Any, call: BatchedCall, *physical: Any) -> Any:
        results = call.forward(physical)
        ctx.call = call
        ctx.save_for_backward(*call.take_saved())
        ctx.mark_non_differentiable(*call.constants)
        ctx.set_materialize_grads(call.ctx.materialize_grads)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, *ctx.call.backward(ctx.saved_tensors, gradients))


def apply_to_batches(owner: type[Function], args: tuple[Any, ...]) -> Any:
    """Apply a function to arguments that ``vmap`` has batched, in the innermost of their levels."""
    _check_mappable(owner)
    number = innermost_of(args)
    is_inner = batching.derivatives > batching.levels[number - 1].derivatives
    if not owner.generate_vmap_rule and not is_inner:
        return by_rule(owner.vmap, args, {})
    call = BatchedCall(owner, args, number)
    return call.finish(_OfBatch.apply(call, *call.physical))
