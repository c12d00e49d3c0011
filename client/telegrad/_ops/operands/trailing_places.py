"""Arguments that PyTorch takes by place where the contract has them by name only, or adds them to every function.

``torch.norm(x, 2, 0, True, out)`` has a target in the fifth place, ``torch.poisson(rates, generator)`` a generator in
the second.
"""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.call_pattern import CallPattern, Miss
from telegrad_protocol.dtypes import DType

_TRAILING: Final[dict[str, tuple[str, ...]]] = {
    "norm": ("out", "dtype"), "poisson": ("generator",), "binomial": ("generator",),
}  # fmt: skip
"""What the places after those of the contract are called, for each function that has some."""


def with_trailing_places(miss: Miss, public: str, places: int) -> Miss:
    """Give the arguments after the first ``places`` the names that they have in PyTorch, where there are any."""
    if public not in _TRAILING:
        return miss

    def name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        more = args[places:]
        if not more or len(more) > len(_TRAILING[public]):
            return miss(args, kwargs)
        return miss(args[:places], {**_named(public, more), **kwargs})[0], None

    return name


def _named(public: str, more: tuple[Any, ...]) -> dict[str, Any]:
    """Return arguments by name; the method ``Tensor.norm`` has a type where the function has a target."""
    if isinstance(more[0], DType):
        return {"dtype": more[0]}
    return dict(zip(_TRAILING[public], more, strict=False))
