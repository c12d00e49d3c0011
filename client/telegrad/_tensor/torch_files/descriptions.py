"""What a file says of a tensor beside its elements, for each way in which PyTorch makes tensors again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telegrad_protocol.dtypes import DType


@dataclass(frozen=True)
class Described:
    """What a file says of a tensor beside its elements."""

    dtype: DType
    shape: tuple[int, ...]
    location: str
    requires_grad: bool
    is_parameter: bool
    kind: type | None = None
    """The class of the program that it is of, if it is."""
    attributes: Any = None


@dataclass(frozen=True)
class DescribedSparse:
    """What a file says of a sparse tensor: its layout, the tensors that it is made of, and what follows them."""

    layout: str
    parts: tuple[Any, ...]
    shape: tuple[int, ...]
    is_coalesced: bool | None


@dataclass(frozen=True)
class DescribedWrapper:
    """What a file says of a tensor that keeps its elements in attributes: its class, shape and such, and attributes."""

    kind: type
    arguments: tuple[Any, ...]
    attributes: Any


@dataclass(frozen=True)
class DescribedCall:
    """What a file says of a tensor that a function of PyTorch's makes of others: the function and its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...]


Description = Described | DescribedSparse | DescribedWrapper | DescribedCall
