"""Element types, their promotion, and the promotion of whole argument lists, all equal to PyTorch's.

Knows nothing of arrays: NumPy and CuPy types are looked up by ``DType.name`` where arrays live.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .errors import ArgumentTypeError, DTypeError, ProtocolError
from .shown_name import shown_name

BOOL, INTEGER, FLOAT, COMPLEX = range(4)


class DType:
    """One element type; the instances in this module are the only ones, so ``is`` compares them."""

    __slots__ = ("category", "code", "is_complex", "is_floating_point", "is_signed", "itemsize", "name")

    def __init__(self, code: int, name: str, itemsize: int, category: int, is_signed: bool = True) -> None:
        self.code = code
        self.name = name
        self.itemsize = itemsize
        self.category = category
        self.is_signed = is_signed
        self.is_floating_point = category == FLOAT
        self.is_complex = category == COMPLEX

    def __repr__(self) -> str:
        return shown_name(self.name)

    def __reduce__(self) -> str:
        return self.name

    @property
    def is_differentiable(self) -> bool:
        """Whether tensors of this type can require a gradient: floating-point and complex ones can."""
        return self.category >= FLOAT

    def to_real(self) -> DType:
        """Return the type of this type's real and imaginary parts; a real type is returned itself."""
        return _REAL_OF.get(self, self)

    def to_complex(self) -> DType:
        """Return the complex type whose parts are of this type."""
        return _COMPLEX_OF.get(self, complex64)


uint8: Final = DType(0, "uint8", 1, INTEGER, is_signed=False)
int8: Final = DType(1, "int8", 1, INTEGER)
int16: Final = DType(2, "int16", 2, INTEGER)
int32: Final = DType(3, "int32", 4, INTEGER)
int64: Final = DType(4, "int64", 8, INTEGER)
float16: Final = DType(5, "float16", 2, FLOAT)
float32: Final = DType(6, "float32", 4, FLOAT)
float64: Final = DType(7, "float64", 8, FLOAT)
complex64: Final = DType(8, "complex64", 8, COMPLEX)
complex128: Final = DType(9, "complex128", 16, COMPLEX)
bool_: Final = DType(10, "bool", 1, BOOL, is_signed=False)
bfloat16: Final = DType(11, "bfloat16", 2, FLOAT)
uint16: Final = DType(12, "uint16", 2, INTEGER, is_signed=False)
uint32: Final = DType(13, "uint32", 4, INTEGER, is_signed=False)
uint64: Final = DType(14, "uint64", 8, INTEGER, is_signed=False)
complex32: Final = DType(15, "complex32", 4, COMPLEX)

ALL: Final = (
    uint8, int8, int16, int32, int64, float16, float32, float64, complex64, complex128, bool_, bfloat16,
    uint16, uint32, uint64, complex32,
)  # fmt: skip
BY_NAME: Final = {dtype.name: dtype for dtype in ALL}
ALIASES: Final = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
    "cfloat": complex64, "cdouble": complex128, "chalf": complex32,
}  # fmt: skip


def named(name: str) -> DType:
    """Return the element type of a name or an alias such as ``float``; ``torch.`` or ``telegrad.`` may precede it."""
    plain = name.removeprefix("torch.").removeprefix("telegrad.")
    dtype = BY_NAME.get(plain) or ALIASES.get(plain)
    if dtype is None:
        raise DTypeError(f"unknown dtype {name!r}: expected one of {', '.join(BY_NAME)}")
    return dtype


_OF_PYTHON: Final = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(value: object) -> DType | None:
    """Return the element type that a program names: one of these, or a type of Python's numbers; None for all else."""
    if isinstance(value, DType):
        return value
    return _OF_PYTHON.get(value) if isinstance(value, type) else None


def dtype_for(function: str, value: object) -> DType:
    """Return the element type that a function is given; raises ArgumentTypeError for what names none."""
    if (dtype := as_dtype(value)) is None:
        raise ArgumentTypeError(f"{function}: expected a dtype such as float32, not {value!r}")
    return dtype


def of_code(code: int) -> DType:
    """Return the element type of a code in a message; ``ProtocolError`` where there is none."""
    if type(code) is not int or not 0 <= code < len(ALL):
        raise ProtocolError(f"unknown dtype code {code!r}")
    return ALL[code]


_REAL_OF: Final = {complex32: float16, complex64: float32, complex128: float64}
_COMPLEX_OF: Final = {float16: complex32, float64: complex128, complex32: complex32, complex128: complex128}

_WIDE_UNSIGNED: Final = (uint16, uint32, uint64)
"""Types that are promoted with floating-point types only, as in PyTorch."""
_ORDER: Final = (
    bool_, *_WIDE_UNSIGNED, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex32,
    complex64, complex128,
)  # fmt: skip


def _promote(a: DType, b: DType) -> DType | None:
    if a is b:
        return a
    low, high = sorted((a, b), key=_ORDER.index)
    if {low, high}.intersection(_WIDE_UNSIGNED) and high.category != FLOAT:
        return None
    if high is complex32 and low in (bfloat16, float32):
        return complex64
    if high is complex32 and low is float64:
        return complex128
    if {low, high} == {uint8, int8}:
        return int16
    if {low, high} == {float16, bfloat16}:
        return float32
    if high is complex64 and low is float64:
        return complex128
    return high


class _Promotion(dict[tuple[DType, DType], DType]):
    """The common type of every pair that has one."""

    def __missing__(self, pair: tuple[DType, DType]) -> DType:
        known = dtype_for("promote_types", pair[0]), dtype_for("promote_types", pair[1])
        if known != pair:
            return self[known]
        raise DTypeError(
            f"promotion of uint16, uint32 and uint64 with other integers is not supported, "
            f"got {pair[0].name} and {pair[1].name}; convert one of them with to()"
        )


_PROMOTION: Final = _Promotion()
for _pair in [(a, b) for a in ALL for b in ALL]:
    _common = _promote(*_pair)
    if _common is not None:
        _PROMOTION[_pair] = _common


def promote_types(type1: DType, type2: DType) -> DType:
    """Return the smallest type that both can be cast to without losing their category."""
    return _PROMOTION[type1, type2]


def can_cast(from_: DType, to: DType) -> bool:
    """Tell whether an in-place operation may store results of type ``from_`` in a tensor of type ``to``."""
    return dtype_for("can_cast", from_).category <= dtype_for("can_cast", to).category


_default: DType = float32


def get_default_dtype() -> DType:
    """Return the type of new floating-point tensors and of Python floats; float32 unless it was set."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Set the type of new floating-point tensors; it must be a floating-point type."""
    global _default
    if not isinstance(dtype, DType):
        raise ArgumentTypeError(f"set_default_dtype: expected a dtype, not {type(dtype).__name__}")
    if not dtype.is_floating_point:
        raise ArgumentTypeError(
            f"set_default_dtype: only floating-point types are supported as the default type, not {dtype.name}"
        )
    _default = of_code(dtype.code)


def of_scalar(value: bool | int | float | complex) -> DType:
    """Return the type that a Python number has in a promotion."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return _default
    return _default.to_complex()


def result_type(operands: Iterable[Any]) -> DType:
    """Return the type of an operation's result, as ``torch.result_type`` does.

    Operands are anything with ``dtype`` and ``ndim``, and Python numbers. Tensors with dimensions outrank 0-d
    tensors, and those outrank Python numbers; a lower rank decides only if its category is higher.
    """
    ranks: list[DType | None] = [None, None, None]
    for operand in operands:
        dtype = getattr(operand, "dtype", None)
        if dtype is None:
            rank, dtype = 2, of_scalar(operand)
        else:
            rank = 0 if operand.ndim else 1
        present = ranks[rank]
        if present is not dtype:
            ranks[rank] = dtype if present is None else _PROMOTION[present, dtype]
    dims, zero, scalar = ranks
    return dims if dims is not None and zero is None and scalar is None else _combine(dims, zero, scalar)


def _combine(dims: DType | None, zero: DType | None, scalar: DType | None) -> DType:
    result = _combine_ranks(dims, _combine_ranks(zero, scalar))
    return result if result is not None else _default


def _combine_ranks(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.category >= FLOAT:
        return higher.to_complex() if lower.category > higher.category else higher
    if higher.category == BOOL or lower.category >= FLOAT:
        return _PROMOTION[higher, lower]
    return higher
