"""Methods of special functions whose first argument is not the tensor."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor


def polygamma(self: Tensor, n: int) -> Tensor:
    """Compute derivative number ``n`` of ``digamma``."""
    return function("polygamma")(n, self)  # type: ignore[no-any-return]


def polygamma_(self: Tensor, n: int) -> Tensor:
    """Replace the elements by those of ``polygamma(n, self)``."""
    return function("_polygamma_")(self, n)  # type: ignore[no-any-return]


METHODS: dict[str, Any] = {"polygamma": polygamma, "polygamma_": polygamma_}
