"""The table of operations on nested tensors of the older layout, those that PyTorch has for it, and who looks them up.

Operations element by element run once, on all elements. The others run on one tensor of the batch after the other.
"""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.operands.implementations import Table
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .functions import is_pointwise, run
from .strided import StridedNestedTensor as Nested

_OF_TWO = frozenset(("add", "sub", "mul", "div", "subtract", "multiply", "divide", "true_divide"))
"""Operations that take two nested tensors of the same sizes; the others of this kind take numbers beside one."""
_OF_VALUES = frozenset((
    "clone", "detach", "contiguous", "dropout", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like",
    "full_like", "_to_copy", "_unversioned", "zero_", "fill_", "bernoulli_", "normal_", "uniform_", "_in_layout",
))  # fmt: skip
TABLE: Final = Table()
implements: Final = TABLE.implements


def dispatch(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation of which an operand is a nested tensor of the strided layout."""
    kwargs = {name: value for name, value in kwargs.items() if name != "out" or value is not None}
    implementation = TABLE.get(public)
    if implementation is not None:
        return implementation(*args, **kwargs)
    if (public in _OF_VALUES or is_pointwise(public)) and "out" not in kwargs:
        return _on_elements(public, args, kwargs)
    raise NotSupportedError(
        f"{public}: not supported for nested tensors of the strided layout; use layout=torch.jagged, or unbind()"
    )


def _on_elements(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    nested = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Nested)]
    first = nested[0]
    if len(nested) > 1 and public.removesuffix("_") not in _OF_TWO:
        raise ArgumentError(f"{public} does not support nested tensor as other value.")
    if any(other._sizes != first._sizes for other in nested):
        raise ArgumentError(f"{public}: expected nested tensors of the same sizes")
    for arg in args:
        if isinstance(arg, Tensor) and not isinstance(arg, Nested) and arg.numel() != 1:
            raise ArgumentError(
                f"{public}: Expected both self and other to be nested, but got a nested self and non-nested other of "
                f"{arg._meta}"
            )
    plain = [_elements_of(arg) for arg in args]
    result = run(public, *plain, **{name: _elements_of(value) for name, value in kwargs.items()})
    if public.endswith("_"):
        return args[0]
    return first if result is first._buffer else first.like(result)


def _elements_of(operand: Any) -> Any:
    if isinstance(operand, Nested):
        return operand._buffer
    return operand.reshape(()) if isinstance(operand, Tensor) else operand
