"""``torch.nn.utils._per_sample_grad``: a backward pass that leaves each parameter the gradients of single samples.

The module is mapped over its batch, each sample with a copy of the parameters of its own, whose gradients are the
samples'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.func import functional_call, vmap
from telegrad.nn.modules.module import Module
from telegrad.utils._pytree import arg_tree_leaves, tree_map
from telegrad_protocol.errors import ArgumentError


def call_for_per_sample_grads(
    module: Any, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """Return a function that calls a module, whose backward pass sets ``grad_sample`` of trainable parameters.

    ``grad_sample`` has the shape ``(batch, *parameter.shape)``, multiplied by the size of the batch where the loss is
    a mean; ``grad`` is left as it is. The batch is the first dimension of tensors, or the second.
    """
    _check(module, batch_size, loss_reduction)

    @wraps(module.forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        dim = 0 if batch_first else 1
        count = batch_size or _size(arg_tree_leaves(*args, **kwargs), dim)
        factor = count if loss_reduction == "mean" else 1
        own = {name: _own(p, count, factor) for name, p in module.named_parameters() if p.requires_grad}
        return _mapped(module, own, args, kwargs, dim, count)

    return wrapper


def _check(module: Any, batch_size: Any, loss_reduction: str) -> None:
    if loss_reduction not in ("sum", "mean"):
        raise ArgumentError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise ArgumentError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise ArgumentError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise ArgumentError(f"Batch size must be positive, got {batch_size}")
    for name, parameter in module.named_parameters():
        if getattr(parameter, "grad_sample", None) is not None:
            raise ArgumentError(f"call_for_per_sample_grads: {name} has a grad_sample already; set it to None")


def _size(leaves: list[Any], dim: int) -> int:
    sizes = {leaf.shape[dim] for leaf in leaves if isinstance(leaf, Tensor)}
    if not sizes:
        raise ArgumentError("Unable to find a tensor in the passed args and kwargs; give batch_size")
    if len(sizes) > 1:
        raise ArgumentError(
            f"When computing batch size, found inputs with the batch sizes {sorted(sizes)}; give batch_size"
        )
    return int(sizes.pop())


def _own(parameter: Tensor, count: int, factor: int) -> Tensor:
    """Return a copy of a parameter for each sample; a pass gives the parameter their gradients."""
    copies: Tensor = parameter.detach().expand(count, *parameter.shape).requires_grad_()

    def note(gradients: Tensor) -> None:
        parameter.grad_sample = gradients.detach() * factor  # type: ignore[attr-defined]

    copies.register_hook(note)
    return copies


def _mapped(module: Any, own: dict[str, Tensor], args: Any, kwargs: Any, dim: int, count: int) -> Any:
    """Call a module for each sample, as a batch of one."""

    def is_batch(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.dim() > dim and leaf.shape[dim] == count

    def of_one(parameters: dict[str, Tensor], given: Any) -> Any:
        places = iter(dims)
        alone = tree_map(lambda leaf: leaf if next(places) is None else leaf.unsqueeze(dim), given)
        return functional_call(module, parameters, *alone)

    given = (args, kwargs)
    dims = [dim if is_batch(leaf) else None for leaf in arg_tree_leaves(*given)]
    places = iter(dims)
    in_dims = (0, tree_map(lambda _: next(places), given))
    results = vmap(of_one, in_dims, dim, randomness="different")(own, given)
    return tree_map(lambda result: result.squeeze(dim + 1) if isinstance(result, Tensor) else result, results)
