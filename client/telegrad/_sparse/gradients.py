"""``as_sparse_gradcheck``: numerical checks of derivatives, for functions of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tensor import SparseTensor


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """Return a ``gradcheck`` that takes functions of sparse tensors, with results that may be sparse too.

    What is varied is each stored element; of sparse results, the stored elements are compared.
    """

    def check(func: Callable[..., Any], inputs: Any, *, masked: bool = True, **options: Any) -> bool:
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        values = tuple([entry.stored if isinstance(entry, SparseTensor) else entry for entry in given])

        def on_values(*elements: Any) -> Any:
            results = func(
                *[
                    entry.like(element) if isinstance(entry, SparseTensor) else element
                    for entry, element in zip(given, elements, strict=True)
                ]
            )
            listed = results if isinstance(results, (tuple, list)) else (results,)
            return tuple([result.stored if isinstance(result, SparseTensor) else result for result in listed])

        return gradcheck(on_values, values, **options)

    return check
