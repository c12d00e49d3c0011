"""Operations along dimensions of one operand: reductions, scans, sorting, softmax, flips and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function

from ..case import Case, Operand, Rule, dim_of, enter, rule
from ..pointwise import pointwise

_NAMES = frozenset(("dim", "dims", "dim0", "dim1", "dim2", "axis0", "axis1"))


def _shifted(value: Any, ndim: int) -> Any:
    if isinstance(value, tuple):
        return tuple([dim_of(dim, ndim) for dim in value])
    return dim_of(value, ndim)


def _along(case: Case) -> Any:
    """Shift the dimensions among the arguments; what has none goes over all elements of a sample."""
    x, args = case.args[0], list(case.args)
    tensor, ndim = x.front, x.ndim
    names = [param.name for param in case.op.params]
    places = [place for place, name in enumerate(names) if name in _NAMES]
    is_reduced = not places or any([args[place] in (None, ()) for place in places])
    if not ndim or is_reduced:
        tensor, ndim = tensor.reshape(case.size, -1), 1
    for place in places:
        args[place] = 1 if is_reduced or not x.ndim else _shifted(args[place], ndim)
        if is_reduced and isinstance(case.args[place], tuple):
            args[place] = (1,)
    if not places:
        return case.shaped(function(case.name)(tensor, 1, unbiased=case.named("unbiased")))
    result = case.call(tensor, *args[1:])
    return case.shaped(result) if not x.ndim or is_reduced else result


enter(
    _along,
    (
        "transpose", "swapaxes", "swapdims", "diagonal", "linalg_diagonal", "sum", "nansum", "mean", "nanmean", "prod",
        "amax", "amin", "aminmax", "argmax", "argmin", "any", "all", "count_nonzero", "logsumexp", "var", "std",
        "var_mean", "std_mean", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "softmax", "log_softmax",
        "softmin", "special_softmax", "special_log_softmax", "argsort", "topk", "kthvalue", "mode",
        "linalg_vector_norm", "glu", "_pad_border", "rot90",
    ),
)  # fmt: skip


@rule("norm")
def _norm(case: Case) -> Any:
    return NotImplemented if case.named("p") == "nuc" else _along(case)


def _extreme(reduced: str) -> Rule:
    def run(case: Case) -> Any:
        if len(case.args) > 1 and isinstance(case.args[1], Operand):
            return pointwise(case)
        if len(case.args) > 1:
            return _along(case)
        return function(reduced)(case.args[0].front.reshape(case.size, -1), 1)

    return run


enter(_extreme("amax"), ("max",))
enter(_extreme("amin"), ("min",))


@rule("median", "nanmedian")
def _median(case: Case) -> Any:
    if len(case.args) > 1:
        return _along(case)
    return function(case.name)(case.args[0].front.reshape(case.size, -1), 1)[0]


@rule("sort")
def _sort(case: Case) -> Any:
    return _along(case)


@rule("msort")
def _msort(case: Case) -> Any:
    x = case.args[0]
    return function("sort")(x.front, 1)[0] if x.ndim else x.front


@rule("flip", "fft_fftshift", "fft_ifftshift")
def _flip(case: Case) -> Any:
    x, dims = case.args
    if not x.ndim:
        return x.front.clone()
    listed = tuple(range(x.ndim)) if dims is None else (dims,) if isinstance(dims, int) else dims
    return case.call(x.front, tuple([dim_of(dim, x.ndim) for dim in listed]))


def _flipped(dim: int) -> Callable[[Case], Any]:
    return lambda case: case.args[0].front.flip(dim)


enter(_flipped(2), ("fliplr",))
enter(_flipped(1), ("flipud",))


@rule("roll")
def _roll(case: Case) -> Any:
    x, shifts, dims = case.args
    if dims in (None, ()) or not x.ndim:
        return case.shaped(x.front.reshape(case.size, -1).roll(shifts, 1))
    return case.call(x.front, shifts, _shifted(dims, x.ndim))


@rule("repeat_interleave")
def _repeat_interleave(case: Case) -> Any:
    if len(case.args) < 3 or not isinstance(case.args[1], int):
        return NotImplemented
    x, repeats, dim = case.args[:3]
    if dim is None:
        return x.front.reshape(case.size, -1).repeat_interleave(repeats, 1)
    return case.call(x.front, repeats, dim_of(dim, x.ndim), *case.args[3:])


@rule("diag")
def _diag(case: Case) -> Any:
    x, offset = case.args
    if x.ndim == 1:
        return function("diag_embed")(x.front, offset)
    return x.front.diagonal(offset, 1, 2).clone()


@rule("diag_embed")
def _diag_embed(case: Case) -> Any:
    x, offset, first, second = case.args
    return case.call(x.front, offset, dim_of(first, x.ndim + 1), dim_of(second, x.ndim + 1))


@rule("trace")
def _trace(case: Case) -> Any:
    return case.args[0].front.diagonal(0, 1, 2).sum(-1)


@rule("quantile", "nanquantile")
def _quantile(case: Case) -> Any:
    x, q, dim, keepdim = case.args[:4]
    rest = case.args[4:]
    if not isinstance(q, float):
        if q.is_batched:
            return NotImplemented
        q = q.tensor
    is_all = dim is None or not x.ndim
    tensor = x.front.reshape(case.size, -1) if is_all else x.front
    result = function(case.name)(tensor, q, 1 if is_all else dim_of(dim, x.ndim), keepdim, interpolation=rest[0])
    if not isinstance(q, float) and q.ndim:
        result = result.movedim(0, 1)
    return case.shaped(result) if is_all else result


@rule("diff")
def _diff(case: Case) -> Any:
    x, n, dim, before, after = case.args
    sides = [None if side is None else side.padded(x.ndim) for side in (before, after)]
    return case.call(x.front, n, dim_of(dim, x.ndim), *sides)


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_backward(case: Case) -> Any:
    grad, output, dim, dtype = case.args
    if not grad.ndim:
        return case.shaped(case.call(grad.front.unsqueeze(1), output.front.unsqueeze(1), 1, dtype))
    return case.call(grad.front, output.front, dim_of(dim, grad.ndim), dtype)


@rule("searchsorted")
def _searchsorted(case: Case) -> Any:
    ordered, values = case.args[:2]
    if not hasattr(values, "front") or case.named("sorter") is not None:
        return NotImplemented
    if ordered.ndim > 1:
        return case.call(ordered.front, values.front, *case.args[2:])
    if not ordered.is_batched:
        return case.call(ordered.tensor, values.front, *case.args[2:])
    rows = values.front.reshape(case.size, -1)
    return case.shaped(case.call(ordered.front, rows.contiguous(), *case.args[2:]))


@rule("bucketize")
def _bucketize(case: Case) -> Any:
    values, boundaries = case.args[:2]
    if not hasattr(values, "front"):
        return NotImplemented
    if not boundaries.is_batched:
        return case.call(values.front, boundaries.tensor, *case.args[2:])
    options = {"out_int32": case.named("out_int32"), "right": case.named("right")}
    rows = values.front.reshape(case.size, -1).contiguous()
    return case.shaped(function("searchsorted")(boundaries.front, rows, **options))


@rule("multinomial")
def _multinomial(case: Case) -> Any:
    x, *rest = case.args
    if x.ndim == 1:
        return case.call(x.front, *rest)
    return case.shaped(case.call(x.front.flatten(0, 1), *rest))
