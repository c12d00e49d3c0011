"""What operators are defined as whose derivative is wrong in PyTorch, by others whose derivatives are right there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def _scattered(input: torch.Tensor, src: torch.Tensor, *view: Any, **named_view: Any) -> torch.Tensor:
    """Copy ``src`` into a view of a copy of ``input``: elements that were replaced have no gradient."""
    result = input.clone()
    result.as_strided(*view, **named_view).copy_(src)
    return result


DEFINED: Final[dict[str, Callable[..., Any]]] = {"as_strided_scatter": _scattered}
"""Gradients of ours are compared with those of these, by the operators' names in the database."""
