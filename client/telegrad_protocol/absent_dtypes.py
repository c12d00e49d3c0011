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


_FLOATS: Final = (
    "float4_e2m1fn_x2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_INTEGERS: Final = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16",
)  # fmt: skip
_WIDE: Final = {"qint32": 4, "bits16": 2}
_UNSIGNED: Final = ("u", "quint", "bits")
ABSENT: Final = {
    **{name: AbsentDType(-1, name, 1, FLOAT) for name in _FLOATS},
    **{name: AbsentDType(-1, name, _WIDE.get(name, 1), INTEGER, not name.startswith(_UNSIGNED)) for name in _INTEGERS},
}
"""By name."""
