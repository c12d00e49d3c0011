"""Numerical checks of derivatives, for functions of sparse tensors: what is varied is each stored element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tensor import SparseTensor


def on_stored(func: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of the stored elements of sparse arguments that gives those of sparse results; and these."""
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    values = tuple([entry.stored if isinstance(entry, SparseTensor) else entry for entry in given])

    def on_values(*elements: Any) -> Any:
        pairs = zip(given, elements, strict=True)
        results = func(*[one.like(values) if isinstance(one, SparseTensor) else values for one, values in pairs])
        listed = results if isinstance(results, (tuple, list)) else (results,)
        return tuple([result.stored if isinstance(result, SparseTensor) else result for result in listed])

    return on_values, values


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """Return a ``gradcheck`` that takes functions of sparse tensors, with results that may be sparse too.

    What is varied is each stored element; of sparse results, the stored elements are compared.
    """

    def check(func: Callable[..., Any], inputs: Any, *, masked: bool = True, **options: Any) -> bool:
        return gradcheck(*on_stored(func, inputs), **options)

    return check
