"""``torch.nn.utils._per_sample_grad``: gradients of single samples by hooks, which ``torch.func`` computes instead."""

from __future__ import annotations

from typing import Any, NoReturn

from telegrad_protocol.errors import NotSupportedError


def call_for_per_sample_grads(module: Any, **options: Any) -> NoReturn:
    """Refuse: ``func.vmap`` of ``func.grad`` gives one gradient for each sample."""
    raise NotSupportedError(
        "call_for_per_sample_grads: use torch.func.vmap(torch.func.grad(loss_of_one_sample), in_dims=(None, 0, 0)), "
        "where torch.func.functional_call runs the module"
    )
