"""Fused optimizer steps (one call updates a whole parameter list), gradient clipping, and the total norm.

On the host elements are updated in blocks that stay in a core's cache together with all their state. Half precision is
computed in float32.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from server.engine.registry import implements
from telegrad_protocol.ops import optim as ops

_BLOCK = 1 << 16
"""Elements of a block: few enough for the cache, and enough to amortize the calls of the array library."""

_scratch: dict[str, np.ndarray] = {}
"""One scratch block per dtype, kept because fresh pages cost more than the arithmetic. The engine has one thread."""


def _apply(xp, update, arrays):
    """Run ``update`` on scratch and arrays of one shape, block by block."""
    first = arrays[0]
    if first.itemsize == 2:
        _apply_in_float32(xp, update, arrays)
    elif xp is not np:
        update(xp.empty_like(first), *arrays)
    elif first.size <= _BLOCK:
        update(_scratch_block(first.dtype)[: first.size].reshape(first.shape), *arrays)
    else:
        _apply_blocks(update, arrays)


def _apply_in_float32(xp, update, arrays):
    """Update float32 copies of half-precision arrays, and round the results back into the arrays."""
    wide = [array.astype(np.float32) for array in arrays]
    _apply(xp, update, wide)
    for array, result in zip(arrays, wide, strict=True):
        array[...] = result


def _apply_blocks(update, arrays):
    flat = _flattened(arrays)
    if flat is None:
        update(np.empty_like(arrays[0]), *arrays)
        return
    scratch = _scratch_block(flat[0].dtype)
    for start in range(0, flat[0].size, _BLOCK):
        parts = [array[start : start + _BLOCK] for array in flat]
        update(scratch[: parts[0].size], *parts)


def _scratch_block(dtype):
    block = _scratch.get(dtype.char)
    if block is None:
        block = _scratch[dtype.char] = np.empty(_BLOCK, dtype)
    return block


def _flattened(arrays):
    """Views of the arrays as vectors, if all are contiguous in the same order (C or Fortran); else None."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return None


def _scalar(xp, scalar):
    """A scalar operand: a Python number, or on a GPU a 0-d array of float64, so that the host need not read it."""
    if scalar is None or isinstance(scalar, (int, float)):
        return scalar
    number = scalar.reshape(())
    return float(number) if xp is np else number.astype(np.float64)


def _in_dtype_of(xp, number, array):
    """A ``_scalar`` in the dtype that ``array`` is computed in, so that the computation is not promoted."""
    is_plain = xp is np or isinstance(number, float)
    return number if is_plain else number.astype(np.float32 if array.itemsize <= 4 else array.dtype)


def _step(xp, update, tensors, found_inf):
    """Run ``update`` on ``tensors``, unless ``found_inf`` is 1: then they stay as they are."""
    if found_inf is None:
        _apply(xp, update, tensors)
    elif xp is np:
        if not found_inf.any():
            _apply(xp, update, tensors)
    else:
        copies = [tensor.copy() for tensor in tensors]  # only the device knows whether to keep the results
        _apply(xp, update, copies)
        for tensor, copied in zip(tensors, copies, strict=True):
            xp.copyto(tensor, copied, where=found_inf.reshape(()) == 0)


def _unscale(xp, grad, scale):
    if scale is not None:
        xp.multiply(grad, 1.0 / scale, out=grad)


@implements(ops._fused_sgd_, movement=True)
def _fused_sgd_(
    xp, params, grads, momentum_buffers, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
    grad_scale, found_inf,
):  # fmt: skip
    rate = _scalar(xp, lr)
    update = partial(
        _sgd_update, xp, lr=rate, sign=-1.0 if maximize else 1.0, decay=weight_decay, momentum=momentum,
        kept=0.0 if is_first_step else momentum, taken=1.0 if is_first_step else 1.0 - dampening,
        nesterov=nesterov, scale=_scalar(xp, grad_scale),
    )  # fmt: skip
    for tensors in zip(params, grads, momentum_buffers, strict=True) if momentum else zip(params, grads, strict=True):
        _step(xp, update, tensors, found_inf)


def _sgd_update(xp, scratch, param, grad, buffer=None, *, lr, sign, decay, momentum, kept, taken, nesterov, scale):
    """d = sign * grad + decay * param; buffer = kept * buffer + taken * d; param -= lr * buffer (or d)

    ``kept`` is the momentum and ``taken`` 1 - dampening, but 0 and 1 in the first step. These are PyTorch's formulas.
    """
    _unscale(xp, grad, scale)
    if buffer is not None:
        xp.multiply(buffer, kept, out=buffer) if kept else buffer.fill(0)
        _add_multiple(xp, scratch, buffer, grad, sign * taken)
        if decay:
            _add_multiple(xp, scratch, buffer, param, decay * taken)
        if not nesterov:
            _add_multiple(xp, scratch, param, buffer, -lr)
            return
    if decay:
        xp.multiply(param, 1.0 - lr * decay, out=param)
    _add_multiple(xp, scratch, param, grad, -sign * lr)
    if buffer is not None:
        _add_multiple(xp, scratch, param, buffer, -lr * momentum)


def _add_multiple(xp, scratch, target, array, factor):
    """target += factor * array"""
    if isinstance(factor, float) and factor == 1.0:
        xp.add(target, array, out=target)
    else:
        xp.add(target, xp.multiply(array, factor, out=scratch), out=target)


@implements(ops._fused_adam_, movement=True)
def _fused_adam_(
    xp, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, weight_decay, amsgrad, **settings
):
    _adam(xp, (params, grads, exp_avgs, exp_avg_sqs), max_exp_avg_sqs if amsgrad else None, state_steps,
          lr=_scalar(xp, lr), decay=weight_decay, shrink=None, **settings)  # fmt: skip


@implements(ops._fused_adamw_, movement=True)
def _fused_adamw_(
    xp, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, weight_decay, amsgrad, **settings
):
    rate = _scalar(xp, lr)
    _adam(xp, (params, grads, exp_avgs, exp_avg_sqs), max_exp_avg_sqs if amsgrad else None, state_steps,
          lr=rate, decay=0.0, shrink=1.0 - rate * weight_decay if weight_decay else None, **settings)  # fmt: skip


def _adam(xp, lists, maxima, steps, *, lr, decay, shrink, beta1, beta2, eps, maximize, grad_scale, found_inf, advance):
    if advance:
        advance_steps(xp, steps, found_inf)
    if xp is np and found_inf is not None and found_inf.any():
        return  # bias corrections divide by zero before the first step
    scale = _scalar(xp, grad_scale)
    if maxima is not None:
        lists = (*lists, maxima)
    for step, *tensors in zip(steps, *lists, strict=True):
        rate, small = corrected(xp, _scalar(xp, step), lr, eps, beta1, beta2)
        update = partial(
            _adam_update, xp, rate=_in_dtype_of(xp, rate, tensors[0]), eps=_in_dtype_of(xp, small, tensors[0]),
            sign=-1.0 if maximize else 1.0, decay=decay, shrink=shrink, beta1=beta1, beta2=beta2, scale=scale,
        )  # fmt: skip
        _step(xp, update, tensors, found_inf)


def corrected(xp, step, lr, eps, beta1, beta2):
    """The learning rate and epsilon of ``_adam_update``, which include the bias corrections of this step."""
    root = _sqrt(xp, 1.0 - beta2**step)
    return lr * root / (1.0 - beta1**step), eps * root


def advance_steps(xp, steps, found_inf):
    for step in {id(step): step for step in steps}.values():
        step += 1.0 if found_inf is None else 1.0 - found_inf.reshape(step.shape)


def _sqrt(xp, number):
    return math.sqrt(number) if xp is np and number >= 0 else xp.sqrt(number)


def _adam_update(
    xp,
    scratch,
    param,
    grad,
    average,
    square,
    maximum=None,
    *,
    rate,
    eps,
    sign,
    decay,
    shrink,
    beta1,
    beta2,
    scale,
):
    """param -= rate * average / (sqrt(square) + eps), where rate and eps include Adam's bias corrections

    average = beta1 * average + (1 - beta1) * gradient; square = beta2 * square + (1 - beta2) * gradient ** 2
    """
    _unscale(xp, grad, scale)
    if decay:
        grad = xp.add(xp.multiply(param, sign * decay), grad)
    xp.multiply(average, beta1, out=average)
    _add_multiple(xp, scratch, average, grad, sign * (1.0 - beta1))
    xp.multiply(square, beta2, out=square)
    xp.multiply(grad, 1.0 - beta2, out=scratch)
    xp.multiply(scratch, grad, out=scratch)
    xp.add(square, scratch, out=square)
    largest = square if maximum is None else xp.maximum(maximum, square, out=maximum)
    xp.sqrt(largest, out=scratch)
    xp.add(scratch, eps, out=scratch)
    xp.divide(average, scratch, out=scratch)
    xp.multiply(scratch, rate, out=scratch)
    if shrink is not None:
        xp.multiply(param, shrink, out=param)
    xp.subtract(param, scratch, out=param)


@implements(ops._foreach_zero_, movement=True)
def _foreach_zero_(xp, tensors):
    for tensor in tensors:
        tensor[...] = 0


@implements(ops._foreach_clamp_, movement=True)
def _foreach_clamp_(xp, tensors, min, max):
    for tensor in tensors:
        if tensor.itemsize == 2:
            tensor[...] = xp.clip(tensor.astype(np.float32), min, max)
        else:
            xp.clip(tensor, min, max, out=tensor)


@implements(ops._total_norm)
def _total_norm(xp, tensors, norm_type, *, out):
    norms = [_norm(xp, tensor, norm_type).astype(out.dtype) for tensor in tensors]
    out[...] = norms[0] if len(norms) == 1 and norm_type else _norm(xp, xp.stack(norms), norm_type)


def _norm(xp, array, order):
    flat = _vector(array)
    if order == 2.0 and flat.dtype.kind == "f":
        return xp.sqrt(xp.dot(flat, flat))
    size = xp.abs(flat)
    if math.isinf(order):
        return (size.max() if order > 0 else size.min()) if flat.size else size.sum()
    if order == 0.0:
        return xp.count_nonzero(size).astype(size.dtype)
    return xp.power(xp.sum(xp.power(size, order)), 1.0 / order)


def _vector(array):
    """The elements as a vector, in an order that needs no copy if there is one."""
    flat = _flattened([array])
    return array.reshape(-1) if flat is None else flat[0]


@implements(ops._clip_to_norm_, movement=True)
def _clip_to_norm_(xp, tensors, total_norm, max_norm):
    norm = total_norm.astype(np.float32) if total_norm.itemsize == 2 else total_norm
    factor = xp.minimum(max_norm / (norm.reshape(()) + 1e-6), 1.0)
    if xp is np:
        factor = float(factor)
        if factor == 1.0:
            return
    for tensor in tensors:
        if tensor.itemsize == 2:
            tensor[...] = tensor.astype(np.float32) * factor
        else:
            xp.multiply(tensor, factor, out=tensor)
