"""Functions of the program that are applied to tensors which ``vmap`` has batched."""

from __future__ import annotations

from typing import Any

from telegrad._batching.functions import BatchedCall, check_mappable
from telegrad._batching.tensor import innermost_of
from telegrad._batching.user_rules import by_rule
from telegrad._ops.batching import batching

from .function import Function


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
    check_mappable(owner, Function)
    number = innermost_of(args)
    is_inner = batching.derivatives > batching.levels[number - 1].derivatives
    if not owner.generate_vmap_rule and not is_inner:
        return by_rule(owner.vmap, args, {})
    call = BatchedCall(owner, args, number)
    return call.finish(_OfBatch.apply(call, *call.physical))


Function._apply_to_batches = classmethod(apply_to_batches)
