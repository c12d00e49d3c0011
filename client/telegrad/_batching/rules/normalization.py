"""Normalization: statistics are those of each element of the batch."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

from ..case import Case, Operand, dim_of, rule


def _is_shared(*operands: Any) -> bool:
    return not any([operand is not None and operand.is_batched for operand in operands])


def _scaled(tensor: Tensor, weight: Any, bias: Any, shape: tuple[int, ...]) -> Tensor:
    """Return a normalized tensor times weight plus bias, each seen in this shape for one element."""
    if weight is not None:
        tensor = tensor * weight.front.reshape(weight.size, *shape)
    return tensor if bias is None else tensor + bias.front.reshape(bias.size, *shape)


def _plain(operand: Any) -> Any:
    return None if operand is None else operand.tensor


@rule("layer_norm")
def _layer_norm(case: Case) -> Any:
    x, shape, weight, bias, eps = case.args
    if _is_shared(weight, bias):
        return case.call(x.front, shape, _plain(weight), _plain(bias), eps)
    lifted = (*(1,) * (x.ndim - len(shape)), *shape)
    return _scaled(case.call(x.front, shape, None, None, eps), weight, bias, lifted)


@rule("rms_norm")
def _rms_norm(case: Case) -> Any:
    x, shape, weight, eps = case.args
    if _is_shared(weight):
        return case.call(x.front, shape, _plain(weight), eps)
    lifted = (*(1,) * (x.ndim - len(shape)), *shape)
    return _scaled(case.call(x.front, shape, None, eps), weight, None, lifted)


@rule("group_norm")
def _group_norm(case: Case) -> Any:
    x, groups, weight, bias, eps = case.args
    is_shared = _is_shared(weight, bias)
    affine = (_plain(weight), _plain(bias)) if is_shared else (None, None)
    result = case.call(x.front.flatten(0, 1), groups, *affine, eps).unflatten(0, (case.size, -1))
    return result if is_shared else _scaled(result, weight, bias, (1, -1, *(1,) * (x.ndim - 2)))


@rule("batch_norm")
def _batch_norm(case: Case) -> Any:
    x, mean, var, weight, bias, training, momentum, eps = case.args
    if training and x.is_batched and mean is not None and not (mean.is_batched and var.is_batched):
        raise AutogradError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in "
            "place, were not batched.\nIf you are using a module and do not need eval mode, please set "
            "`track_running_stats` to be False; or use torch.func.replace_all_batch_norm_modules_."
        )
    if not training and mean is not None and _is_shared(mean, var, weight, bias):
        flat = x.front.flatten(0, 1)
        given = [_plain(operand) for operand in (mean, var, weight, bias)]
        return case.call(flat, *given, training, momentum, eps).unflatten(0, (case.size, -1))
    tensor = _by_channel(x)
    stats = [None if operand is None else operand.front.reshape(-1) for operand in (mean, var)]
    result = case.call(tensor, *stats, None, None, training, momentum, eps)
    for operand, flat in zip((mean, var), stats, strict=True):
        if training and flat is not None and operand.is_batched and not operand.tensor.is_contiguous():
            operand.tensor.copy_(flat.reshape(operand.tensor.shape))
    result = result.unflatten(1, (case.size, -1)).movedim(1, 0)
    return _scaled(result, weight, bias, (1, -1, *(1,) * (x.ndim - 2)))


def _by_channel(x: Operand) -> Tensor:
    """Return the input with the channels of all elements of the batch as channels of the same samples."""
    return x.front.movedim(0, 1).flatten(1, 2)


@rule("prelu")
def _prelu(case: Case) -> Any:
    x, weight = case.args
    channels = weight.shape[0] if weight.ndim else 1
    shape = (1, channels) if x.ndim > 1 else (channels,)
    factor = weight.front.reshape(case.size, *shape, *(1,) * (x.ndim - len(shape))) if x.ndim else weight.front
    tensor = x.front
    factor = factor.reshape(tensor.shape) if not x.ndim else factor
    return function("where")(tensor > 0, tensor, factor * tensor)


@rule("normalize")
def _normalize(case: Case) -> Any:
    x, p, dim, eps = case.args
    if not x.ndim:
        return case.shaped(case.call(x.front.unsqueeze(1), p, 1, eps))
    return case.call(x.front, p, dim_of(dim, x.ndim), eps)


@rule("_layer_norm", "_rms_norm")
def _with_statistics(case: Case) -> Any:
    x, shape, *affine, eps = case.args
    if not _is_shared(*affine):
        return NotImplemented
    return case.call(x.front, shape, *map(_plain, affine), eps)
