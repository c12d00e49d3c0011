"""``SummaryWriter`` of the package tensorboardX, whose methods also take telegrad's tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorboardX
from tensorboardX import FileWriter

from telegrad._tensor.tensor import Tensor

__all__ = ["FileWriter", "SummaryWriter"]


def _array_of(value: Any) -> Any:
    """Return a value with the tensors in it, and in lists and dictionaries, as arrays."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_array_of, value))
    return {key: _array_of(item) for key, item in value.items()} if isinstance(value, dict) else value


def _with_arrays(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def add(*args: Any, **kwargs: Any) -> Any:
        return method(*map(_array_of, args), **{name: _array_of(value) for name, value in kwargs.items()})

    return add


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]
    """tensorboardX's writer, whose ``add_`` methods take telegrad's tensors. A graph of a model is not written."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return _with_arrays(value) if name.startswith("add_") and name != "add_graph" else value

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, **kwargs: Any) -> None:
        """Do nothing: telegrad records no graph of a model."""
