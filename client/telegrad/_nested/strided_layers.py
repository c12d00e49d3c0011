"""Layers, sums, products and padding of nested tensors of the older layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .functions import run
from .strided import StridedNestedTensor as Nested
from .strided_table import implements


@implements("softmax")
def _softmax(input: Nested, dim: int, *options: Any, **named: Any) -> Nested:
    inner = input.inner_dim("softmax", dim)
    return Nested.of([run("softmax", part, inner, *options, **named) for part in input.parts()])


@implements("sum")
def _sum(input: Nested, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Nested:
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    if len(dims) != 1:
        raise ArgumentError("NestedTensor only allows reduction of a single dimension for now.")
    if input.wrapped(dims[0]) != input.ndim - 1:
        raise ArgumentError("NestedTensor can only be reduced across the last dimension for now")
    if not keepdim:
        raise ArgumentError("NestedTensor always requires keepdim=True for now.")
    return Nested.of([part.sum(-1, True, dtype=dtype) for part in input.parts()])


@implements("linear")
def _linear(input: Nested, weight: Tensor, bias: Tensor | None = None) -> Nested:
    rows = input._buffer.reshape(-1, input.size(-1))
    result = run("linear", rows, weight, bias)
    return Nested(result.reshape(-1), [(*size[:-1], int(weight.shape[0])) for size in input._sizes])


@implements("layer_norm")
def _layer_norm(
    input: Nested, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Nested:
    if weight is None or bias is None:
        raise ArgumentError("NestedTensor layer_norm requires weight and bias")
    shape = tuple(normalized_shape)
    if any(size[-len(shape) :] != shape for size in input._sizes):
        raise ArgumentError(f"layer_norm: the tensors of the batch do not end with the sizes {shape}")
    rows = input._buffer.reshape(-1, *shape)
    return input.like(run("layer_norm", rows, shape, weight, bias, eps).reshape(-1))


@implements("matmul")
def _matmul(input: Any, other: Any) -> Nested:
    if not (isinstance(input, Nested) and isinstance(other, Nested)):
        kinds = ["nested" if isinstance(operand, Nested) else "non-nested" for operand in (input, other)]
        raise ArgumentError(f"Expected both to be nested, but got a {kinds[0]} self and {kinds[1]} other")
    return Nested.of([a.matmul(b) for a, b in zip(input.parts(), other.parts(), strict=True)])


@implements("bmm")
def _bmm(input: Any, mat2: Any) -> Nested:
    parts = [list(operand.unbind()) for operand in (input, mat2)]
    if len(parts[0]) != len(parts[1]):
        raise ArgumentError(f"bmm: batches of {len(parts[0])} and {len(parts[1])} matrices")
    return Nested.of([a.mm(b) for a, b in zip(*parts, strict=True)])


@implements("masked_fill")
def _masked_fill(input: Nested, mask: Nested, value: Any) -> Nested:
    if not isinstance(input, Nested) or not isinstance(mask, Nested) or mask._sizes != input._sizes:
        raise ArgumentError("masked_fill: expected a nested mask of the same sizes")
    return input.like(run("masked_fill", input._buffer, mask._buffer, value))


@implements("copy_")
def _copy_into(input: Nested, src: Nested, non_blocking: bool = False) -> Nested:
    if not (isinstance(input, Nested) and isinstance(src, Nested) and input._sizes == src._sizes):
        raise ArgumentError("copy_ only supports tensors that are the same size for Nested implementations")
    input._buffer.copy_(src._buffer)
    return input


@implements("embedding")
def _embedding(input: Nested, weight: Tensor, *args: Any, **kwargs: Any) -> Nested:
    rows = run("embedding", input._buffer, weight, *args, **kwargs)
    return Nested(rows.reshape(-1), [(*size, int(weight.shape[-1])) for size in input._sizes])


@implements("to_padded_tensor")
def to_padded_tensor(input: Nested, padding: Any, output_size: Sequence[int] | None = None) -> Tensor:
    """Return an ordinary tensor in which smaller tensors of the batch are filled up with ``padding``."""
    if not input._sizes:
        raise ArgumentError("to_padded_tensor: at least one constituent tensor should have non-zero numel")
    most = [max(sizes) for sizes in zip(*input._sizes, strict=True)]
    wanted = most if output_size is None else list(output_size)[1:]
    if len(wanted) != len(most) or any(new < size for new, size in zip(wanted, most, strict=True)):
        raise ArgumentError("Value in output_size is less than NestedTensor padded size. Truncation is not supported.")
    return run("stack", [_filled(part, wanted, padding) for part in input.parts()])  # type: ignore[no-any-return]


def _filled(part: Tensor, sizes: Sequence[int], padding: Any) -> Tensor:
    amounts = [a for size, own in zip(reversed(sizes), reversed(part.shape), strict=True) for a in (0, size - own)]
    return run("pad", part, amounts, "constant", padding)  # type: ignore[no-any-return]


@implements("scaled_dot_product_attention")
def _attention(
    query: Nested, key: Nested, value: Nested, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Nested:  # fmt: skip
    if attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: masks are not supported for nested tensors")
    triples = zip(*[operand.parts() for operand in (query, key, value)], strict=True)
    parts = [
        run(
            "scaled_dot_product_attention", *[part.unsqueeze(0) for part in triple], None, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        ).squeeze(0)
        for triple in triples
    ]  # fmt: skip
    return Nested.of(parts)
