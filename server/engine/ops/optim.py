"""Optimizer steps, each for a whole parameter list.

Elements are updated in blocks that stay in a core's cache with all their state; half precision is computed in float32.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from telegrad_protocol.ops import optim as ops

from ..backend import BY_NUMPY, HALVES
from ..operators import implements

_BLOCK = 1 << 14
"""Elements of a block: state and scratch of five float32 arrays take 320 KB, a core's second-level cache."""


# -- walking through memory


def _blocks(xp, arrays):
    """Matching parts of arrays of one shape, each part small enough for the cache; whole arrays on a GPU."""
    if xp is not np or arrays[0].size <= _BLOCK:
        yield arrays
        return
    flat = _flattened(arrays)
    if flat is None:
        yield arrays
        return
    for start in range(0, flat[0].size, _BLOCK):
        yield [array[start : start + _BLOCK] for array in flat]


def _flattened(arrays):
    """The same memory as vectors, if all arrays lie in it in one dense order."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return None


def _is_half(array):
    return BY_NUMPY[array.dtype] in HALVES


def _apply(xp, update, *arrays):
    """Run ``update`` on the arrays block by block; halves are worked on as float32 copies and stored back."""
    for parts in _blocks(xp, arrays):
        if not _is_half(parts[0]):
            update(*parts)
            continue
        wide = [part.astype(np.float32) for part in parts]
        update(*wide)
        for part, result in zip(parts, wide, strict=True):
            part[...] = result


def _number(xp, scalar):
    """A number to compute with; on a GPU a tensor's value stays there."""
    if scalar is None or isinstance(scalar, (int, float)):
        return scalar
    return float(scalar) if xp is np else scalar.reshape(())


def _step(xp, update, tensors, found_inf):
    """Run ``update`` on ``tensors``, or on nothing where ``found_inf`` is 1."""
    if found_inf is None:
        _apply(xp, update, *tensors)
    elif xp is np:
        if not found_inf.any():
            _apply(xp, update, *tensors)
    else:
        copies = [tensor.copy() for tensor in tensors]  # whether to keep them is known to the device alone
        _apply(xp, update, *copies)
        for tensor, copied in zip(tensors, copies, strict=True):
            xp.copyto(tensor, copied, where=found_inf.reshape(()) == 0)


def _unscale(xp, grad, scale):
    if scale is not None:
        xp.multiply(grad, 1.0 / scale, out=grad)


# -- stochastic gradient descent


@implements(ops._fused_sgd_, movement=True)
def _fused_sgd_(
    xp, params, grads, momentum_buffers, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
    grad_scale, found_inf,
):  # fmt: skip
    update = partial(
        _descend, xp, lr=_number(xp, lr), decay=weight_decay, momentum=momentum,
        kept=0.0 if is_first_step else momentum, taken=1.0 if is_first_step else 1.0 - dampening,
        nesterov=nesterov, maximize=maximize, scale=_number(xp, grad_scale),
    )  # fmt: skip
    for tensors in zip(params, grads, momentum_buffers, strict=True) if momentum else zip(params, grads, strict=True):
        _step(xp, update, tensors, found_inf)


def _descend(xp, param, grad, buffer=None, *, lr, decay, momentum, kept, taken, nesterov, maximize, scale):
    """param -= lr * direction; the buffer becomes kept * buffer + taken * grad"""
    _unscale(xp, grad, scale)
    rate = -lr if maximize else lr
    if buffer is None and not decay:
        xp.subtract(param, xp.multiply(grad, rate), out=param)
        return
    sign = -1.0 if maximize else 1.0
    direction = xp.multiply(grad, sign)
    if decay:
        direction += xp.multiply(param, decay)
    if buffer is not None:
        direction = _with_momentum(xp, direction, buffer, momentum, kept, taken, nesterov)
    direction = xp.multiply(direction, lr)
    xp.subtract(param, direction, out=param)


def _with_momentum(xp, direction, buffer, momentum, kept, taken, nesterov):
    if kept:
        xp.multiply(buffer, kept, out=buffer)
        buffer += direction if taken == 1.0 else xp.multiply(direction, taken)
    else:
        buffer[...] = direction
    if not nesterov:
        return buffer
    direction += xp.multiply(buffer, momentum)
    return direction


# -- Adam


@implements(ops._fused_adam_, movement=True)
def _fused_adam_(
    xp, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, weight_decay, amsgrad, **settings
):
    _adam(xp, (params, grads, exp_avgs, exp_avg_sqs), max_exp_avg_sqs if amsgrad else None, state_steps,
          lr=_number(xp, lr), decay=weight_decay, shrink=0.0, **settings)  # fmt: skip


@implements(ops._fused_adamw_, movement=True)
def _fused_adamw_(
    xp, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, weight_decay, amsgrad, **settings
):
    rate = _number(xp, lr)
    _adam(xp, (params, grads, exp_avgs, exp_avg_sqs), max_exp_avg_sqs if amsgrad else None, state_steps,
          lr=rate, decay=0.0, shrink=rate * weight_decay if weight_decay else 0.0, **settings)  # fmt: skip


def _adam(
    xp, lists, maxima, steps, *, lr, decay, shrink, beta1, beta2, eps, maximize, grad_scale, found_inf, advance
):
    if advance:
        _advance(xp, steps, found_inf)
    scale = _number(xp, grad_scale)
    if maxima is not None:
        lists = (*lists, maxima)
    for step, *tensors in zip(steps, *lists, strict=True):
        at = _number(xp, step)
        update = partial(
            _adapt, xp, lr=lr / (1.0 - beta1**at), root=_root(xp, 1.0 - beta2**at), decay=decay, shrink=shrink,
            beta1=beta1, beta2=beta2, eps=eps, maximize=maximize, scale=scale,
        )  # fmt: skip
        _step(xp, update, tensors, found_inf)


def _advance(xp, steps, found_inf):
    for step in {id(step): step for step in steps}.values():
        step += 1.0 if found_inf is None else 1.0 - found_inf.reshape(step.shape)


def _root(xp, number):
    return math.sqrt(number) if xp is np else xp.sqrt(number)


def _adapt(
    xp, param, grad, average, square, maximum=None, *, lr, root, decay, shrink, beta1, beta2, eps, maximize, scale
):
    """param -= lr * average / (sqrt(square) / root + eps), with lr and root corrected for the start at zero"""
    _unscale(xp, grad, scale)
    if maximize:
        grad = xp.negative(grad)
    if decay:
        grad = xp.add(grad, xp.multiply(param, decay))
    scratch = xp.multiply(grad, 1.0 - beta1, out=xp.empty_like(grad))
    xp.multiply(average, beta1, out=average)
    xp.add(average, scratch, out=average)
    xp.multiply(grad, grad, out=scratch)
    xp.multiply(scratch, 1.0 - beta2, out=scratch)
    xp.multiply(square, beta2, out=square)
    xp.add(square, scratch, out=square)
    largest = square if maximum is None else xp.maximum(maximum, square, out=maximum)
    xp.sqrt(largest, out=scratch)
    xp.divide(scratch, root, out=scratch)
    xp.add(scratch, eps, out=scratch)
    xp.divide(average, scratch, out=scratch)
    xp.multiply(scratch, lr, out=scratch)
    if shrink:
        xp.multiply(param, 1.0 - shrink, out=param)
    xp.subtract(param, scratch, out=param)


# -- all gradients at once


@implements(ops._foreach_zero_, movement=True)
def _foreach_zero_(xp, tensors):
    for tensor in tensors:
        tensor[...] = 0


@implements(ops._foreach_clamp_, movement=True)
def _foreach_clamp_(xp, tensors, min, max):
    for tensor in tensors:
        if _is_half(tensor):
            tensor[...] = xp.clip(tensor.astype(np.float32), min, max)
        else:
            xp.clip(tensor, min, max, out=tensor)


@implements(ops._total_norm)
def _total_norm(xp, tensors, norm_type, *, out):
    norms = [_norm(xp, tensor, norm_type) for tensor in tensors]
    out[...] = norms[0] if len(norms) == 1 else _norm(xp, xp.stack(norms), norm_type)


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
    """The elements in whatever order needs no copy, if there is one."""
    flat = _flattened([array])
    return array.reshape(-1) if flat is None else flat[0]


@implements(ops._clip_to_norm_, movement=True)
def _clip_to_norm_(xp, tensors, total_norm, max_norm):
    norm = total_norm.astype(np.float32) if _is_half(total_norm) else total_norm
    factor = xp.minimum(max_norm / (norm.reshape(()) + 1e-6), 1.0)
    if xp is np:
        factor = float(factor)
        if factor == 1.0:
            return
    for tensor in tensors:
        if _is_half(tensor):
            tensor[...] = tensor.astype(np.float32) * factor
        else:
            xp.multiply(tensor, factor, out=tensor, casting="same_kind")
