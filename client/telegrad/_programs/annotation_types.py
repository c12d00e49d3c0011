"""Names for annotations, as in ``torch.types``."""

from __future__ import annotations

from builtins import bool as _bool
from builtins import bytes as _bytes
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeAlias

from telegrad._tensor.layouts import Layout as _layout
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType as _dtype
from telegrad_protocol.meta import Device as _device

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "PySymType", "Tensor"]

Number: TypeAlias = _int | _float | _bool
Device: TypeAlias = _device | _str | _int | None
FileLike: TypeAlias = _str | PurePath
IntLikeType: TypeAlias = _int
FloatLikeType: TypeAlias = _float
BoolLikeType: TypeAlias = _bool
PySymType: TypeAlias = _int | _float | _bool
_size: TypeAlias = Size | list[_int] | tuple[_int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_dispatchkey: TypeAlias = _str
_symsize: TypeAlias = _size
__all__ += ["_bool", "_bytes", "_complex", "_device", "_dtype", "_float", "_int", "_layout", "_size", "_str"]
