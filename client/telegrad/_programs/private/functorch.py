"""``torch._C._functorch``: levels of ``vmap`` that programs enter by themselves, and what is batched in them."""

from __future__ import annotations

from typing import Any

from telegrad._batching import handler as _handler
from telegrad._batching.tensor import BatchedTensor
from telegrad._ops.batching import Level, batching
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.functorch import config as config
from telegrad.func._vmap_steps import _add_batch_dim as _add_batch_dim
from telegrad.func._vmap_steps import _remove_batch_dim as _remove_batch_dim


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for those of a whole batch."""
    return isinstance(tensor, BatchedTensor)


def is_gradtrackingtensor(tensor: Any) -> bool:
    """Whether a tensor is wrapped to find its derivative: none is."""
    return False


is_functionaltensor = is_legacy_batchedtensor = is_gradtrackingtensor
is_functorch_wrapped_tensor = is_batchedtensor


def get_unwrapped(tensor: Tensor) -> Tensor:
    """Return the batch that a tensor is an element of in its innermost level; a tensor that is in none itself."""
    return tensor._physical if isinstance(tensor, BatchedTensor) else tensor


def maybe_get_bdim(tensor: Any) -> int:
    """Return the batch's dimension in `get_unwrapped`'s tensor, which is the first; -1 if there is none."""
    return 0 if isinstance(tensor, BatchedTensor) else -1


def maybe_current_level() -> int | None:
    """Return the number of the innermost level; None outside of all of them."""
    return len(batching.levels) or None


def maybe_get_level(tensor: Any) -> int:
    """Return the number of the innermost level that a tensor is batched in; -1 if there is none."""
    return tensor._level if isinstance(tensor, BatchedTensor) else -1


def _vmap_increment_nesting(batch_size: int, randomness: str) -> int:
    """Enter one more level, and return its number."""
    _handler.enter()
    batching.levels = (*batching.levels, Level(batch_size, randomness, batching.derivatives))
    return len(batching.levels)


def _vmap_decrement_nesting() -> int:
    """Leave the innermost level, and return the number that it had."""
    number = len(batching.levels)
    batching.levels = batching.levels[:-1]
    return number
