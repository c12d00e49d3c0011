"""What all data pipes have: methods that make further pipes, by the names that these are registered with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, TypeVar

from ..dataset import Dataset, IterableDataset

P = TypeVar("P", bound=type)
T_co = TypeVar("T_co", covariant=True)


class _Joined:
    """Finds the pipes that are registered for a kind of pipe as methods, and shows a pipe by its class."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Have all pipes of this kind call ``function`` as the method of that name."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Callable[..., Any]) -> None:
        """Have a method of that name, of all pipes of this kind, make a pipe of a class."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return type(self).__qualname__

    __str__ = __repr__


class IterDataPipe(_Joined, IterableDataset[T_co]):
    """A stream of samples. ``reset`` is called where a subclass defines it and a pass over the stream begins."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__")

    def reset(self) -> None:
        """Begin anew; streams that keep nothing have nothing to do."""


class MapDataPipe(_Joined, Dataset[T_co]):
    """Samples by index or key."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __iter__(self) -> Iterator[T_co]:
        return (self[index] for index in range(len(self)))


class functional_datapipe:
    """Registers the class that it decorates as a method of streams, or of sequences, under a name."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: P) -> P:
        """Register a class of pipes, and return it."""
        if not issubclass(cls, (IterDataPipe, MapDataPipe)):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        kind: Any = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        kind.register_datapipe_as_function(self.name, cls)
        return cls


def applied(fn: Callable[..., Any], sample: Any, input_col: Any, output_col: Any) -> Any:
    """Return what a function makes of a sample, or of some fields of it, which then are replaced or joined by others.

    ``output_col`` of a tuple or list may be -1, which appends the result.
    """
    if input_col is None:
        return fn(sample)
    columns = list(input_col) if isinstance(input_col, (list, tuple)) else [input_col]
    result = fn(*(sample[column] for column in columns))
    changed: Any = list(sample) if isinstance(sample, tuple) else sample.copy()
    if output_col is None:
        changed[columns[0]] = result
        for column in sorted(columns[1:], reverse=True):
            del changed[column]
    elif output_col == -1:
        changed.append(result)
    else:
        changed[output_col] = result
    return tuple(changed) if isinstance(sample, tuple) else changed
