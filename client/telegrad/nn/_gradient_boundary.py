"""The hooks of one call of a module that see the gradients of its inputs and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from telegrad._tensor.hooks import Hook
from telegrad._tensor.tensor import Tensor
from telegrad.autograd.function import Function

Gradients = tuple[Any, ...]
_NO_INPUT = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
    "gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
    "register_full_backward_hook for more details."
)


class BackwardHookFunction(Function):
    """The identity; ``change`` maps the gradients that have arrived to those that flow on.

    Where none has arrived, it gets zeros if ``materialize`` is true, and None otherwise.
    """

    @staticmethod
    def forward(
        ctx: Any, change: Callable[[Gradients], Gradients], materialize: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(materialize)
        ctx.change = change
        ctx.mark_non_differentiable(*[tensor for tensor in tensors if not tensor.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *ctx.change(grads))


class GradientBoundary:
    """Stands before and after one call: hooks get ``(module, grad_output)``, and ``(module, grad_input, grad_output)``.

    What a hook returns replaces the gradients of the outputs, or those of the inputs.
    """

    def __init__(self, module: Any, hooks: Sequence[Hook], pre_hooks: Sequence[Hook]) -> None:
        self._module = module
        self._hooks, self._pre_hooks = hooks, pre_hooks
        self._grad_outputs: Gradients | None = None
        self._inputs: list[int] | None = None
        self._count = 0

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the call, behind the boundary."""
        self._count = len(args)
        places = [place for place, argument in enumerate(args) if isinstance(argument, Tensor)]
        if any(args[place].requires_grad for place in places):
            self._inputs = places
            inside = BackwardHookFunction.apply(self._leave_backwards, True, *[args[place] for place in places])
            return _replace(args, places, inside)
        return args

    def leave(self, output: Any) -> Any:
        """Return the output of the call, behind the boundary; a warning says where it has no place for tensors."""
        if not isinstance(output, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(output)}",
                stacklevel=4,
            )
        outputs = output if isinstance(output, tuple) else (output,)
        places = [place for place, value in enumerate(outputs) if isinstance(value, Tensor)]
        if not any(outputs[place].requires_grad for place in places):
            return output
        self._outputs = len(outputs), places
        outside = BackwardHookFunction.apply(self._enter_backwards, False, *[outputs[place] for place in places])
        changed = _replace(outputs, places, outside)
        return changed if isinstance(output, tuple) else changed[0]

    def _enter_backwards(self, grads: Gradients) -> Gradients:
        count, places = self._outputs
        outputs = _replace((None,) * count, places, grads)
        for hook in self._pre_hooks:
            replaced = hook(self._module, outputs)
            outputs = _replaced("Backward pre hook", outputs, replaced, count)
        self._grad_outputs = outputs
        if self._inputs is None:
            if self._hooks:
                warnings.warn(_NO_INPUT, stacklevel=2)
            for hook in self._hooks:
                replaced = hook(self._module, (None,) * self._count, outputs)
                if replaced is not None and any(gradient is not None for gradient in _tuple(replaced)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None or None "
                        "for all gradients."
                    )
        return tuple([outputs[place] for place in places])

    def _leave_backwards(self, grads: Gradients) -> Gradients:
        if self._grad_outputs is None:
            return grads
        assert self._inputs is not None
        inputs = _replace((None,) * self._count, self._inputs, grads)
        for hook in self._hooks:
            replaced = hook(self._module, inputs, self._grad_outputs)
            inputs = _replaced("Backward hook", inputs, replaced, self._count)
        self._grad_outputs = None
        return tuple([inputs[place] for place in self._inputs])


def _tuple(value: Any) -> Gradients:
    return value if isinstance(value, tuple) else (value,)


def _replaced(kind: str, before: Gradients, replaced: Any, count: int) -> Gradients:
    if replaced is None:
        return before
    after = _tuple(replaced)
    if len(after) != count:
        raise RuntimeError(f"{kind} returned an invalid number of grad_input, got {len(after)}, but expected {count}")
    return after


def _replace(values: tuple[Any, ...], places: Sequence[int], by: Sequence[Any]) -> tuple[Any, ...]:
    changed = list(values)
    for place, value in zip(places, by, strict=True):
        changed[place] = value
    return values._make(changed) if hasattr(values, "_make") else tuple(changed)
