"""Operations element by element: of one jagged tensor, of several of one division, with numbers and dense tensors."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .functions import TABLE, implements, nested_among, run
from .padding import padded_length, spread
from .ragged_size import RaggedSize
from .tensor import NestedTensor

_OF_VALUES = (
    "clone", "detach", "contiguous", "_in_layout", "dropout", "alpha_dropout", "bernoulli", "frexp", "_unversioned",
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "prelu", "conj",
    "bernoulli_", "normal_", "uniform_", "exponential_", "zero_", "fill_", "random_", "square", "rrelu",
)  # fmt: skip
"""Operations that are not declared as pointwise, and treat every element of the values alike nevertheless."""


def aligned(name: str, operand: Any, nested: NestedTensor) -> Any:
    """Return an operand as what broadcasts to the values of a nested tensor as it does to the tensor."""
    if isinstance(operand, NestedTensor):
        if not nested.shares(operand):
            raise _unlike(name, nested, operand)
        return operand._values
    if isinstance(operand, RaggedSize):
        raise ArgumentError(f"NestedTensor {name}: invalid argument {operand}")
    return _aligned_dense(name, operand, nested) if isinstance(operand, Tensor) else operand


def _unlike(name: str, nested: NestedTensor, other: Tensor) -> ArgumentError:
    return ArgumentError(
        f"cannot call binary pointwise function {name} with inputs of shapes {tuple(nested.shape)} and "
        f"{tuple(other.shape)}: their ragged sizes must come from the same offsets"
    )


def _aligned_dense(name: str, dense: Tensor, nested: NestedTensor) -> Tensor:
    if dense.ndim > nested.ndim:
        raise NotSupportedError(f"{name}: broadcasting a nested tensor with a tensor of more dimensions")
    squeezed = dense
    while squeezed.ndim and squeezed.shape[0] == 1:
        squeezed = squeezed.squeeze(0)
    if nested.ndim >= squeezed.ndim + 2:
        return squeezed
    is_batch = dense.ndim == nested.ndim and dense.shape[0] == nested.shape[0]
    if is_batch and dense.shape[nested._dim] in (1, padded_length(nested)):
        return spread(dense, nested)
    raise _unlike(name, nested, dense)


def _first(operands: list[NestedTensor]) -> NestedTensor:
    """Return the nested tensor whose dimensions a result has: the one of the most."""
    return max(operands, key=lambda operand: operand.ndim)


@implements("pointwise")
def pointwise(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on values; a form in place returns its nested tensor."""
    nested = _first(nested_among((*args, *kwargs.values())))
    if "out" in kwargs:
        raise NotSupportedError(f"{name}: out= is not supported for nested tensors")
    result = run(
        name, *[aligned(name, arg, nested) for arg in args],
        **{key: aligned(name, value, nested) for key, value in kwargs.items()},
    )  # fmt: skip
    if name.endswith("_"):
        if not isinstance(args[0], NestedTensor):
            raise NotSupportedError(f"{name}: a nested tensor cannot be written into an ordinary one")
        return args[0]
    return nested.like(result)


def _on_values(name: str) -> Any:
    def apply(input: Any, *args: Any, **kwargs: Any) -> Any:
        nested = input if isinstance(input, NestedTensor) else _first(nested_among((*args, *kwargs.values())))
        given = [arg._values if isinstance(arg, NestedTensor) else arg for arg in args]
        result = run(name, input._values if isinstance(input, NestedTensor) else input, *given, **kwargs)
        if name.endswith("_"):
            return input
        if isinstance(result, tuple):
            return type(result)(*map(nested.like, result))
        return nested if result is nested._values else nested.like(result)

    return apply


for _name in _OF_VALUES:
    TABLE[_name] = _on_values(_name)


@implements("_to_copy")
def converted(input: NestedTensor, *, dtype: Any, device: Any) -> NestedTensor:
    """Return the tensor in another dtype or on another device, its offsets with it."""
    ragged = input._ragged.to(device)
    return NestedTensor(run("_to_copy", input._values, dtype=dtype, device=device), ragged, input._dim)


@implements("where")
def where(condition: Any, input: Any, other: Any) -> Any:
    """Choose elements of two tensors or numbers by a nested condition."""
    if not isinstance(condition, NestedTensor):
        raise ArgumentError("where(): expected condition to be a jagged layout NestedTensor")
    return pointwise("where", (condition, input, other), {})


@implements("masked_fill")
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """Replace elements where a mask is true."""
    if not isinstance(input, NestedTensor):
        raise ArgumentError("masked_fill(): the mask is nested, so the tensor must be nested too")
    values = value._values if isinstance(value, NestedTensor) else value
    return input.like(run("masked_fill", input._values, aligned("masked_fill", mask, input), values))


@implements("copy_")
def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Write the elements of a nested tensor of the same sizes into another one."""
    if not isinstance(input, NestedTensor) or not isinstance(src, NestedTensor):
        raise ArgumentError("copy_(): expected both tensors to be nested, of the jagged layout")
    if input.shape != src.shape:
        sizes = [[part.shape for part in tensor.unbind()] for tensor in (input, src)]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                f"copy_(): expected compatible input and src shapes, but got: {input.shape} and {src.shape}"
            )
        for part, source in zip(input.unbind(), src.unbind(), strict=True):
            part.copy_(source)
        return input
    input._values.copy_(src._values)
    return input
