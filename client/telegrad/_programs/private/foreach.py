"""``torch._foreach_add`` and its like: an operation on each tensor of a list, one instruction after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

_NAMES: Final = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone cos cosh div erf erfc exp expm1 floor frac "
    "lerp lgamma log log10 log1p log2 max mm mul neg norm pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub "
    "tan tanh trunc"
)
_METHODS: Final = {"maximum": "clamp_min", "minimum": "clamp_max"}
_INPLACE_ONLY: Final = ("copy_", "zero_")
_WITHOUT_INPLACE: Final = ("clone", "max", "mm", "norm")
_FIRST: Final = ("other", "scalar", "scalars", "exponent", "tensors1", "src", "mat2")
"""What PyTorch's overloads call the second operand, by which a program may pass it."""
_RENAMED: Final = {"weights": "weight"}
_OF_THREE: Final = ("addcdiv", "addcmul")
"""Operations of three tensors, whose factor PyTorch also calls ``scalars`` and takes by its place."""


def _of_each(method: str, is_inplace: bool) -> Callable[..., Any]:
    def run(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("non_blocking", None)
        args, kwargs = _as_method(method.removesuffix("_"), args, kwargs)
        if method == "pow" and isinstance(self, (int, float, complex)):
            return tuple(self**exponent for exponent in args[0])
        _check_lists(method, self, [*args, *kwargs.values()])
        results = []
        for place, tensor in enumerate(self):
            named = {name: _at(value, place) for name, value in kwargs.items()}
            results.append(getattr(tensor, method)(*[_at(value, place) for value in args], **named))
        return list(self) if is_inplace else tuple(results)

    return run


def _check_lists(method: str, tensors: Any, others: Sequence[Any]) -> None:
    """Refuse what is no list of tensors, and lists beside it of another length, before anything is written."""
    if not isinstance(tensors, (list, tuple)) or not all([isinstance(tensor, Tensor) for tensor in tensors]):
        raise ArgumentTypeError(f"_foreach_{method}: expected a list of tensors, not {type(tensors).__name__}")
    for other in others:
        if isinstance(other, (list, tuple)) and len(other) != len(tensors):
            raise ArgumentError(
                f"_foreach_{method}: lists must have the same number of elements, got {len(tensors)} and {len(other)}"
            )


def _as_method(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the method of a tensor takes for what PyTorch's function over lists takes."""
    if method in _OF_THREE:
        if len(args) > 2 or "scalars" in kwargs:
            factors = args[2] if len(args) > 2 else kwargs.pop("scalars")
            kwargs["value"] = factors.tolist() if isinstance(factors, Tensor) else factors
        return args[:2], kwargs
    first = tuple(kwargs.pop(name) for name in _FIRST if name in kwargs)
    return args + first, {_RENAMED.get(name, name): value for name, value in kwargs.items()}


def _at(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, (list, tuple)) else value


def _norms(self: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(tensor.norm(ord, dtype=dtype) for tensor in self)


def _power_sums(self: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(tensor.abs().pow(ord).sum(dtype=dtype) for tensor in self)


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions by name; those that end with an underscore modify the tensors in place."""
    made = {f"_foreach_{name}": _of_each(name, False) for name in _NAMES.split()}
    made |= {f"_foreach_{name}_": _of_each(f"{name}_", True) for name in _NAMES.split() if name not in _WITHOUT_INPLACE}
    for name, method in _METHODS.items():
        made[f"_foreach_{name}"], made[f"_foreach_{name}_"] = _of_each(method, False), _of_each(f"{method}_", True)
    made |= {"_foreach_norm": _norms, "_foreach_powsum": _power_sums}
    return made | {f"_foreach_{name}": _of_each(name, True) for name in _INPLACE_ONLY}
