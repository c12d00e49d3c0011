"""``torch.utils.debug_log``: a line in the log for gradients as they come, in compiled functions too."""

from __future__ import annotations

import logging
from typing import Any

from telegrad._tensor.tensor import Tensor

from .leaf_functions import leaf_function

__all__ = ["debug_grad_log"]
_log = logging.getLogger("torch.utils.debug_log")


@leaf_function
def debug_grad_log(*tensors: Tensor) -> None:
    """Log the norms of the gradients of tensors, once a backward pass has all of them; each norm is a round trip."""


@debug_grad_log.register_fake  # type: ignore[untyped-decorator]
def _without_results(*tensors: Tensor) -> None:
    return None


@debug_grad_log.register_multi_grad_hook  # type: ignore[untyped-decorator]
def _logged(*gradients: Any) -> None:
    norms = [
        f"t{place}_grad_norm={gradient.norm().item():.4f}"
        for place, gradient in enumerate(gradients)
        if gradient is not None
    ]
    _log.info("[rank 0][bwd] %s", " ".join(norms))
