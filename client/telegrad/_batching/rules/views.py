"""Views, splits, and operations that take one operand and do the same to it whatever its shape."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function

from ..case import Case, Operand, dim_of, enter, rule
from ..pointwise import pointwise

enter(
    pointwise,
    (
        "detach", "alias", "_unversioned", "positive", "real", "imag", "view_as_real", "view_as_complex", "conj",
        "contiguous", "clone", "zeros_like", "ones_like", "empty_like", "full_like", "tril", "triu",
        "_with_gradient_of", "fill_", "zero_", "rand_like", "randn_like", "randint_like", "bernoulli", "bernoulli_",
        "uniform_", "normal_",
        "exponential_", "cauchy_", "log_normal_", "geometric_", "random_", "poisson", "normal", "native_dropout",
        "dropout", "alpha_dropout", "native_dropout_backward", "one_hot", "_to_copy", "frexp",
    ),
    is_direct=True,
)  # fmt: skip


@rule("copy_", is_direct=True)
def _copy(case: Case) -> Any:
    target, source = case.args[:2]
    return case.call(target.tensor, source.lifted(target.ndim), *case.args[2:])


@rule("view", "reshape", "view_as", "reshape_as", "flatten", "ravel", "unflatten")
def _shape(case: Case) -> Any:
    out, x = case.outs[0], case.args[0]
    if out.dtype is not x.meta.dtype:
        return case.call(x.front, *case.args[1:])  # a view as another type
    is_view = case.name in ("view", "view_as")
    return function("view" if is_view else "reshape")(x.front, (case.size, *out.shape))


@rule("expand", "expand_as", "broadcast_to")
def _expand(case: Case) -> Any:
    shape = case.outs[0].shape
    tensor = case.args[0].front
    for _ in range(len(shape) - case.args[0].ndim):
        tensor = tensor.unsqueeze(1)
    return tensor.expand(case.size, *shape)


@rule("squeeze")
def _squeeze(case: Case) -> Any:
    x, dims = case.args[0], case.args[1]
    if dims is None:
        dims = tuple(range(x.ndim))
    listed = (dims,) if isinstance(dims, int) else dims
    tensor = x.front
    for dim in sorted({dim_of(dim, x.ndim) for dim in listed if x.ndim}, reverse=True):
        tensor = tensor.squeeze(dim)
    return tensor


@rule("unsqueeze")
def _unsqueeze(case: Case) -> Any:
    x, dim = case.args
    return x.front.unsqueeze(dim_of(dim, x.ndim + 1))


@rule("t")
def _transposed(case: Case) -> Any:
    x = case.args[0]
    return x.front.transpose(1, 2) if x.ndim == 2 else function("alias")(x.front)


@rule("_with_zero_derivative")
def _with_zero_derivative(case: Case) -> Any:
    x, others = case.args
    return function("_with_zero_derivative")(x.front, [other.tensor for other in others])


@rule("permute")
def _permute(case: Case) -> Any:
    x, dims = case.args
    return x.front.permute(0, *[dim_of(dim, x.ndim) for dim in dims])


@rule("movedim", "moveaxis")
def _movedim(case: Case) -> Any:
    x, *moved = case.args
    shifted = [dims if isinstance(dims, tuple) else (dims,) for dims in moved]
    return case.call(x.front, *[tuple([dim_of(dim, x.ndim) for dim in dims]) for dims in shifted])


@rule("as_strided")
def _as_strided(case: Case) -> Any:
    x, size, stride, offset = case.args
    tensor = x.front
    return tensor.as_strided((case.size, *size), (tensor.stride(0), *stride), offset)


@rule("unfold", "unbind", "split", "split_with_sizes", "chunk", "tensor_split", "narrow", "slice", "select")
def _part(case: Case) -> Any:
    names = [param.name for param in case.op.params]
    place = next(names.index(name) for name in ("dim", "dimension") if name in names)
    x, args = case.args[0], list(case.args)
    if not x.ndim:
        return case.shaped(case.call(x.front.unsqueeze(1), *args[1:place], 1, *args[place + 1 :]))
    args[place] = dim_of(args[place], x.ndim)
    return case.call(x.front, *args[1:])


@rule("repeat", "tile")
def _repeat(case: Case) -> Any:
    x, repeats = case.args
    repeats = (*(1,) * (x.ndim - len(repeats)), *repeats)
    return x.padded(len(repeats)).repeat(1, *repeats)


@rule("new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")
def _new(case: Case) -> Any:
    x, size, *rest = case.args
    if case.name == "new_empty_strided":
        rest[0] = (max([s * n for s, n in zip(rest[0], size, strict=True)], default=1), *rest[0])
    return case.call(x.front, (case.size, *size), *rest)


@rule("_in_layout")
def _in_layout(case: Case) -> Any:
    x, strides = case.args
    length = sum([(size - 1) * stride for size, stride in zip(x.shape, strides, strict=True)]) + 1
    return case.call(x.front, (max(length, 1), *strides))


@rule("constant_pad_nd")
def _constant_pad(case: Case) -> Any:
    return case.call(case.args[0].front, *case.args[1:])


@rule("masked_fill", is_direct=True)
def _masked_fill(case: Case) -> Any:
    x, mask, value = case.args
    if not isinstance(value, Operand):
        return pointwise(case)
    if case.name.endswith("_"):
        return NotImplemented
    ndim = max(x.ndim, mask.ndim)
    return function("where")(mask.lifted(ndim), value.lifted(ndim).to(x.meta.dtype), x.lifted(ndim))


@rule("feature_dropout")
def _feature_dropout(case: Case) -> Any:
    x, *rest = case.args
    if x.ndim < 3:
        return NotImplemented
    return case.call(x.front.flatten(0, 1), *rest).unflatten(0, (case.size, -1))
