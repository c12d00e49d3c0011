"""Element types of PyTorch's that programs name, in tables and comparisons, and of which there are no tensors here."""

from __future__ import annotations

from typing import Any, Final

from .dtypes import FLOAT, INTEGER, DType
from .errors import DTypeError


class AbsentDType(DType):
    """A type that is refused wherever a tensor of it is asked for."""

    __slots__ = ()

    @property
    def code(self) -> int:
        """Raise DTypeError: messages never carry this type."""
        raise DTypeError(f"there are no tensors of {self!r}; use bfloat16, float16 or int8")

    @code.setter
    def code(self, value: Any) -> None:
        pass


_FLOATS: Final = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_INTEGERS: Final = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
ABSENT: Final = {
    **{name: AbsentDType(-1, name, 1, FLOAT) for name in _FLOATS},
    **{name: AbsentDType(-1, name, 4 if name == "qint32" else 1, INTEGER, name[0] == "q") for name in _INTEGERS},
}
"""By name."""
