"""Annotations of tensors by their dimensions, some of which may be unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """The type of tensors with these dimensions, as in ``TensorType((1, 2, Dyn))``."""

    def __init__(self, dim: Sequence[Any]) -> None:
        self.__origin__, self.__args__ = TensorType, dim

    @property
    def dims(self) -> Sequence[Any]:
        """The dimensions: integers, and ``Dyn``."""
        return self.__args__

    def __repr__(self) -> str:
        return f"TensorType[{self.dims}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and [*self.dims] == [*other.dims]

    __hash__ = None  # type: ignore[assignment]  # as in PyTorch

    def __class_getitem__(cls, *args: Any) -> TensorType:
        return cls(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)


class _DynType:
    """The type of a dimension, or of a tensor, of which nothing is known: it is consistent with every other."""

    __name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    __hash__ = None  # type: ignore[assignment]  # as in PyTorch

    def __repr__(self) -> str:
        return "Dyn"


Dyn: Final = _DynType()


def is_consistent(t1: object, t2: object) -> bool:
    """Tell whether a value can be of both types: where both are known they are the same."""
    if t1 == t2 or isinstance(t1, _DynType) or isinstance(t2, _DynType):
        return True
    return _compare(is_consistent, t1, t2)


def is_more_precise(t1: object, t2: object) -> bool:
    """Tell whether the first type says what the second one does, and maybe more."""
    return t1 == t2 or isinstance(t2, _DynType) or _compare(is_more_precise, t1, t2)


def _compare(relation: Any, t1: object, t2: object) -> bool:
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType) or len(t1.dims) != len(t2.dims):
        return False
    return all([relation(one, other) for one, other in zip(t1.dims, t2.dims, strict=True)])
