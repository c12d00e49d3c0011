"""What operations do to masked tensors, by the names that PyTorch's functions have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from . import _reductions


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNARY: Final = _names("""
    abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil
    clamp clip conj_physical cos cosh deg2rad digamma elu erf erfc erfinv exp exp2 expm1 fix float_power floor frac gelu
    i0 isfinite isinf isnan leaky_relu lgamma log log10 log1p log2 logical_not logit nan_to_num neg negative positive
    pow rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit silu sin sinc sinh softplus sqrt square tan tanh
    trunc __neg__ __abs__ __invert__ __pos__ __pow__
    _to_copy to float double half bfloat16 int long short char byte bool type type_as
    ones_like zeros_like empty_like full_like rand_like randn_like fill zero dropout
""")
"""Results have the mask of the operand; the same names with an underscore behind them change it."""
BINARY: Final = _names("""
    add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div divide eq
    floor_divide fmax fmin fmod ge greater greater_equal gt hypot le less less_equal logaddexp logaddexp2 logical_and
    logical_or logical_xor lt maximum minimum mul multiply ne nextafter not_equal remainder rsub sub subtract
    true_divide __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__
    __itruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__
    __xor__ __rpow__ addcmul addcdiv lerp
""")
"""Masks of operands must be equal, and are that of the result."""
ALIKE: Final = _names("""
    T mT broadcast_to cat chunk clone concat concatenate contiguous detach diagonal expand expand_as flatten flip
    gather hstack index_select movedim moveaxis narrow permute ravel repeat repeat_interleave reshape roll select split
    split_with_sizes squeeze stack swapaxes swapdims t take_along_dim tensor_split tile transpose unbind unflatten
    unsqueeze view view_as reshape_as vstack __getitem__ cpu cuda
""")
"""Data and mask are treated alike."""
REDUCTIONS: Final = _names("sum mean prod amax amin argmax argmin all norm var std")
SOFTMAX: Final = _names("softmax log_softmax softmin")
PLAIN: Final = _names("""
    dim ndimension size numel nelement stride storage_offset is_contiguous is_floating_point is_complex is_signed
    element_size data_ptr get_device __len__ __bool__ __float__ __int__
    is_pinned
""")
"""Results are those of the data, and are not masked."""


def reduced(name: str, data: Tensor, mask: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Tensor]:
    """Return the reduction of the chosen elements, and where there were any."""
    given = dict(zip(_PARAMETERS.get(name, ("dim", "keepdim")), args)) | kwargs
    if "axis" in given:
        given["dim"] = given.pop("axis")
    dim, keepdim = given.pop("dim", None), bool(given.pop("keepdim", False))
    if name in _WITHOUT_OPTIONS:
        given.pop("dtype", None)
    if name == "norm":
        given["ord"] = given.pop("p", 2.0)
        given["ord"] = 2.0 if given["ord"] == "fro" else given["ord"]
    chosen: Callable[..., Any] = _all if name == "all" else getattr(_reductions, name)
    result = chosen(data, dim=dim, keepdim=keepdim, mask=mask, **given)
    return result, _any(mask, dim, keepdim)


_PARAMETERS: Final = {
    "norm": ("p", "dim", "keepdim", "dtype"), "var": ("dim", "unbiased", "keepdim"),
    "std": ("dim", "unbiased", "keepdim"), "sum": ("dim", "keepdim", "dtype"),
    "mean": ("dim", "keepdim", "dtype"), "prod": ("dim", "keepdim", "dtype"),
}  # fmt: skip
_WITHOUT_OPTIONS: Final = ("amax", "amin", "argmax", "argmin", "all")


def _all(data: Tensor, *, dim: Any, keepdim: bool, mask: Tensor) -> Tensor:
    whole = function("where")(mask, data.bool(), function("ones_like")(mask))
    return whole.all() if dim is None else whole.all(dim, keepdim)  # type: ignore[no-any-return]


def _any(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Return where any element is chosen."""
    if not mask.ndim:
        return mask
    dims = range(mask.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    for one in sorted({each % mask.ndim for each in dims}, reverse=True):
        mask = mask.any(one, keepdim)
    return mask


def same_mask(masks: list[Tensor]) -> Tensor:
    """Return the mask that all operands have. Comparing different tensors waits for one round trip."""
    first = masks[0]
    for other in masks[1:]:
        if other is not first and not (other.shape == first.shape and bool((other == first).all())):
            raise ArgumentError("masked tensors: the masks of operands must match")
    return first
