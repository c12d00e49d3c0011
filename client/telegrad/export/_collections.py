"""Other ways to say which dimensions may differ: by tensor, and by more examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ._dims import Dim, named_arguments
from ._graphs.core_operators import core_table


class ShapesCollection:
    """``dynamic_shapes`` by tensor: ``collection[tensor] = {0: Dim.DYNAMIC}``."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}

    def __setitem__(self, tensor: Any, shape: Any) -> None:
        self._shapes[id(tensor)] = shape

    def __getitem__(self, tensor: Any) -> Any:
        return self._shapes[id(tensor)]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Return what ``export`` takes for these arguments."""

        def chosen(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)([chosen(item) for item in value])
            if isinstance(value, dict):
                return {key: chosen(item) for key, item in value.items()}
            return self._shapes.get(id(value))

        return {name: chosen(value) for name, value in named_arguments(module, args, kwargs or {}).items()}


class AdditionalInputs:
    """``dynamic_shapes`` by examples: a dimension that differs between them may differ between calls."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Add an example."""
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Return what ``export`` takes for these arguments. ArgumentError where an example has another structure."""
        examples = [named_arguments(m, *one) for one in [(args, kwargs or {}), *self._examples]]
        return {name: _varied(name, [example.get(name) for example in examples]) for name in examples[0]}

    def verify(self, ep: Any) -> None:
        """Call the program with each example; raises what it refuses."""
        for args, kwargs in self._examples:
            ep.module()(*args, **kwargs)


def _varied(name: str, values: Sequence[Any]) -> Any:
    first, others = values[0], values[1:]
    if isinstance(first, (list, tuple)) and all([isinstance(o, type(first)) and len(o) == len(first) for o in others]):
        return type(first)([_varied(f"{name}[{i}]", column) for i, column in enumerate(zip(*values, strict=True))])
    if isinstance(first, dict) and all([isinstance(o, dict) and o.keys() == first.keys() for o in others]):
        return {key: _varied(f"{name}[{key!r}]", [value[key] for value in values]) for key in first}
    if not isinstance(first, Tensor):
        return None
    if not all([isinstance(other, Tensor) and other.ndim == first.ndim for other in others]):
        raise ArgumentError(f"export: the examples of {name} are not all tensors of {first.ndim} dimensions")
    sizes = zip(*[value.shape for value in values], strict=True)
    return [Dim.DYNAMIC if len(set(column)) > 1 else Dim.STATIC for column in sizes]


def unflatten(module: Any, flat_args_adapter: Callable[..., Any] | None = None) -> Any:
    """Return a program as the modules that were called when it was exported, which may be replaced by others.

    Each takes what it uses, in the order in which it does, and returns what others use of it.
    """
    return module.unflattened()


def default_decompositions() -> dict[Any, Any]:
    """Return functions for operators that are not among PyTorch's core ones, as far as there are some."""
    return core_table()
