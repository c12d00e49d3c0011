"""Element-wise functions that are short programs of operations: ``float_power``, ``ldexp``, ``isreal`` and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import INTEGER, bool_, complex128, float64, int64
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

from ..creation import tensor
from ..into import into


def float_power(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """Raise numbers to a power in double precision: the result is float64, or complex128."""
    wide = complex128 if _is_complex(input) or _is_complex(exponent) else float64
    base, power = (x.to(wide) if isinstance(x, Tensor) else _wide_number(x, wide) for x in (input, exponent))
    return into("float_power", function("pow")(base, power), out)  # type: ignore[no-any-return]


def _is_complex(x: Any) -> bool:
    return x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex)


def _wide_number(x: Any, dtype: Any) -> Any:
    return complex(x) if dtype is complex128 else float(x)


def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """Replace the elements by those of ``float_power``; the tensor must be float64 or complex128."""
    wide = complex128 if _is_complex(self) or _is_complex(exponent) else float64
    if self.dtype is not wide:
        raise DTypeError(f"float_power_: the {wide.name} result does not go into {self._meta}")
    return self.pow_(exponent.to(wide) if isinstance(exponent, Tensor) else exponent)


def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply by powers of two: input * 2 ** other."""
    return into("ldexp", _times_power(input, other), out)  # type: ignore[no-any-return]


def _times_power(input: Tensor, other: Tensor) -> Tensor:
    """Return input * 2 ** other; integer exponents change no type, and only the product overflows."""
    tensors = isinstance(input, Tensor) and isinstance(other, Tensor)
    if not tensors or not input.is_floating_point() or other.dtype.category != INTEGER:
        return input * function("pow")(2.0, other)  # type: ignore[no-any-return]
    product: Tensor = input.to(float64) * function("pow")(2.0, other.to(float64))
    return product.to(input.dtype)


def ldexp_(self: Tensor, other: Tensor) -> Tensor:
    """Multiply the elements by powers of two."""
    return self.copy_(_times_power(self, other))


def isreal(input: Tensor) -> Tensor:
    """Tell which elements have no imaginary part."""
    if input.is_complex():
        return input.imag == 0
    return function("ones_like")(input, dtype=bool_)  # type: ignore[no-any-return]


def is_nonzero(input: Tensor) -> bool:
    """Tell whether a tensor of one element is not zero; one round trip."""
    if input.numel() != 1:
        kind = "more than one value" if input.numel() else "no values"
        raise ShapeError(f"Boolean value of Tensor with {kind} is ambiguous")
    return bool(input)


def unravel_index(indices: Tensor, shape: int | Sequence[int] | Tensor) -> tuple[Tensor, ...]:
    """Return the coordinates, one tensor per dimension, of elements that are counted through a tensor of ``shape``."""
    if not isinstance(indices, Tensor) or indices.dtype.category != 1:
        raise ArgumentTypeError(f"unravel_index: indices must be integers, not {getattr(indices, '_meta', indices)!r}")
    listed = shape.tolist() if isinstance(shape, Tensor) else shape
    sizes = [listed] if isinstance(listed, int) else list(listed)
    if not all(isinstance(size, int) for size in sizes):
        raise ArgumentTypeError(f"unravel_index: shape must be integers, not {shape!r}")
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"unravel_index: shape must not be negative, got {sizes}")
    steps = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    divisors, moduli = (tensor(numbers, dtype=int64, device=indices.device) for numbers in (steps, sizes))
    coordinates: tuple[Tensor, ...] = (indices.unsqueeze(-1) // divisors % moduli).unbind(-1)
    return coordinates


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Return the sums of what broadcasting to this tensor's shape would repeat: a tensor of the shape ``size``."""
    target = Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    lead = self.ndim - len(target)
    fits = lead >= 0 and all(s in (1, own) for s, own in zip(target, self.shape[lead:], strict=True))
    if not fits:
        raise ShapeError(
            f"sum_to_size: size {list(target)} is not expandable to size {list(self.shape)} of {self._meta}"
        )
    if not target:
        return self.sum()
    kept = [d for d in range(lead, self.ndim) if target[d - lead] == 1 and self.shape[d] != 1]
    result = self.sum(kept, keepdim=True) if kept else self
    return result.sum(list(range(lead))) if lead else result


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None) -> Tensor:
    """Return ``size`` rows of indices of elements that are not zero, with rows of ``fill_value`` if there are fewer."""
    if size < 0:
        raise ArgumentError(f"nonzero_static: size must not be negative, got {size}")
    indices = function("nonzero")(input)[:size]
    missing = input.new_full((size - len(indices), input.ndim), fill_value, dtype=int64)
    return into("nonzero_static", function("cat")([indices, missing]), out)  # type: ignore[no-any-return]


METHODS: dict[str, Any] = {
    "float_power": float_power, "float_power_": float_power_, "ldexp": ldexp, "ldexp_": ldexp_, "isreal": isreal,
    "sum_to_size": sum_to_size, "nonzero_static": nonzero_static, "is_nonzero": is_nonzero,
}  # fmt: skip
