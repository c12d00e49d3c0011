"""Contracts of the ``_foreach_`` family: one operation on each tensor of a list, in one instruction.

Names, overloads and semantics are PyTorch's: tensors of one row are on one device, rows may be on several. Functional
forms give a tuple of new tensors, and gradients flow through them; forms that end in ``_`` write into the first list,
and nothing is recorded of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import Meta

from .contract import PUBLIC, Scalar, op
from .targets import check_target_type

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "minimum", "maximum", "pow")
SCALED = ("add", "sub")
"""Those whose second operand is multiplied by ``alpha``."""
TERNARY = ("addcmul", "addcdiv")
EXPRESSIONS: dict[str, int] = {
    "abs": 1, "neg": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "reciprocal": 1, "tanh": 1,
    "add": 2, "add_number": 1, "sub": 2, "sub_number": 1, "mul": 2, "mul_number": 1,
    "div": 2, "div_number": 1, "maximum": 2, "minimum": 2,
    "addcmul": 3, "addcdiv": 3, "lerp_number": 2, "copy_": 1,
}  # fmt: skip
"""What ``_foreach_apply_`` computes, and of how many lists."""
Rule: TypeAlias = Callable[..., tuple[Meta, ...]]
_METHODS = {"minimum": "clamp_max", "maximum": "clamp_min"}
"""What the operation with a number is called where the one with two tensors takes none."""


def per_tensor(name: str, public: str, *lists: Any, **options: Any) -> list[Meta]:
    """Return the results of an operation on the tensors of parallel lists; numbers are passed to all of them."""
    count = len(lists[0])
    for other in lists[1:]:
        if isinstance(other, (tuple, list)) and len(other) != count:
            raise ArgumentError(f"{name}: expected lists of one length, got {count} and {len(other)}")
    if not count:
        raise ArgumentError(f"{name}: expected at least one tensor")
    rows = [[o[i] if isinstance(o, (tuple, list)) else o for o in lists] for i in range(count)]
    return [_inferred(public, row, options) for row in rows]


def _inferred(public: str, row: Sequence[Any], options: dict[str, Any]) -> Meta:
    operation = PUBLIC[public][0]
    meta: Any = operation.infer(operation.bind(tuple(row), options))
    return meta


def of_number(public: str) -> str:
    """Return the name of the operation on a tensor and a number."""
    return _METHODS.get(public, public)


def _declare(public: str, overload: str, counterpart: str, rule: Rule) -> None:
    """File a form that makes new tensors and one that overwrites the first list."""
    label = f"_foreach_{public}"
    suffix = f".{overload}" if overload else ""
    rule.__doc__ = f"The result of ``{counterpart}`` on every tensor of the list."
    op(name=f"{label}{suffix}", out=False, method=False, mixed_devices=True)(rule)
    op(
        name=f"{label}_{suffix}", out=False, method=False, differentiable=False, updates=True, mixed_devices=True,
        mutates="self", no_grad=tuple(_tensor_names(rule)),
    )(_overwriting(f"{label}_", rule))  # fmt: skip


def _tensor_names(rule: Callable[..., Any]) -> list[str]:
    return [name for name, kind in rule.__annotations__.items() if "Meta" in kind and name != "return"]


def _overwriting(name: str, rule: Rule) -> Callable[..., None]:
    """The rule of an in-place form: results must go into the tensors of the first list, whose types they get."""

    @wraps(rule)
    def check(self: Any, *args: Any, **kwargs: Any) -> None:
        for target, result in zip(self, rule(self, *args, **kwargs), strict=True):
            if target.shape != result.shape or target.device is not result.device:
                raise ArgumentError(f"{name}: the result {result} does not go into {target}")
            check_target_type(name, target.dtype, result.dtype)

    return check


def _unary(public: str) -> None:
    def rule(self: list[Meta]) -> tuple[Meta, ...]:
        return tuple(per_tensor(f"_foreach_{public}", public, self))

    _declare(public, "", public, rule)


def _binary(public: str) -> None:
    label = f"_foreach_{public}"

    def scalar(self: list[Meta], scalar: Scalar) -> tuple[Meta, ...]:
        return tuple(per_tensor(label, of_number(public), self, scalar))

    def scalars(self: list[Meta], scalars: list[Scalar]) -> tuple[Meta, ...]:
        return tuple(per_tensor(label, of_number(public), self, scalars))

    def plain(self: list[Meta], other: list[Meta]) -> tuple[Meta, ...]:
        return tuple(per_tensor(label, public, self, other))

    def scaled(self: list[Meta], other: list[Meta], *, alpha: Scalar = 1) -> tuple[Meta, ...]:
        return tuple(per_tensor(label, public, self, other, alpha=alpha))

    def tensor(self: list[Meta], other: Meta) -> tuple[Meta, ...]:
        return tuple(per_tensor(label, public, self, other))

    _declare(public, "Scalar", public, scalar)
    _declare(public, "List", public, scaled if public in SCALED else plain)
    _declare(public, "ScalarList", public, scalars)
    if public in ("add", "mul", "div"):
        _declare(public, "Tensor", public, tensor)


def _ternary(public: str) -> None:
    label = f"_foreach_{public}"

    def scalar(
        self: list[Meta], tensor1: list[Meta], tensor2: list[Meta], value: Scalar = 1
    ) -> tuple[Meta, ...]:  # fmt: skip
        return tuple(per_tensor(label, public, self, tensor1, tensor2, value=value))

    def scalars(
        self: list[Meta], tensor1: list[Meta], tensor2: list[Meta], scalars: list[Scalar]
    ) -> tuple[Meta, ...]:  # fmt: skip
        if len(scalars) != len(self):
            raise ArgumentError(f"{label}: expected {len(self)} numbers, got {len(scalars)}")
        return tuple(per_tensor(label, public, self, tensor1, tensor2))

    _declare(public, "Scalar", public, scalar)
    _declare(public, "ScalarList", public, scalars)


def _lerp() -> None:
    def tensors(self: list[Meta], tensors1: list[Meta], weights: list[Meta]) -> tuple[Meta, ...]:
        return tuple(per_tensor("_foreach_lerp", "lerp", self, tensors1, weights))

    def scalar(self: list[Meta], tensors1: list[Meta], weight: Scalar) -> tuple[Meta, ...]:
        return tuple(per_tensor("_foreach_lerp", "lerp", self, tensors1, weight))

    def scalars(self: list[Meta], tensors1: list[Meta], scalars: list[Scalar]) -> tuple[Meta, ...]:
        return tuple(per_tensor("_foreach_lerp", "lerp", self, tensors1, scalars))

    _declare("lerp", "List", "lerp", tensors)
    _declare("lerp", "Scalar", "lerp", scalar)
    _declare("lerp", "ScalarList", "lerp", scalars)


for _name in UNARY:
    _unary(_name)
for _name in BINARY:
    _binary(_name)
for _name in TERNARY:
    _ternary(_name)
_lerp()


@op(out=False, method=False, mixed_devices=True)
def _foreach_norm(self: list[Meta], ord: float = 2.0) -> tuple[Meta, ...]:
    """Compute the norms of the tensors, as vectors of all their elements."""
    return tuple(per_tensor("_foreach_norm", "norm", self, ord))


@op(
    out=False, method=False, differentiable=False, updates=True, mixed_devices=True, mutates="self",
    no_grad=("self", "src"),
)  # fmt: skip
def _foreach_copy_(self: list[Meta], src: list[Meta], non_blocking: bool = False) -> None:
    """Copy the tensors of ``src`` into those of ``self``, with broadcasting and conversion."""
    per_tensor("_foreach_copy_", "copy_", self, src)


@op(
    out=False, method=False, differentiable=False, updates=True, mutates="self",
    no_grad=("self", "first", "second", "third"),
)  # fmt: skip
def _foreach_apply_(
    self: list[Meta], expression: str, first: list[Meta], second: list[Meta], third: list[Meta], scalars: list[Scalar]
) -> None:
    """Write ``expression`` of parallel lists of tensors, and of a list of numbers, into ``self``."""
    for other in (first, second, third):
        if other and [(m.shape, m.dtype) for m in other] != [(m.shape, m.dtype) for m in self]:
            raise ArgumentError(f"_foreach_apply_: lists differ in shapes or types from {len(self)} tensors")
    if len(scalars) != len(self):
        raise ArgumentError(f"_foreach_apply_: expected {len(self)} numbers, got {len(scalars)}")
    if any(isinstance(scalar, complex) for scalar in scalars):
        raise DTypeError("_foreach_apply_: numbers must be real")
    count = EXPRESSIONS.get(expression, -1)
    if [bool(one) for one in (first, second, third)] != [bool(self) and number < count for number in range(3)]:
        raise ArgumentError(f"_foreach_apply_: no expression {expression!r} of these lists")
    for meta in self:
        if not meta.dtype.is_floating_point:
            raise DTypeError(f"_foreach_apply_: expected floating-point tensors, got {meta}")
