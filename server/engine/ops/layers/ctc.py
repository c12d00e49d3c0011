"""The connectionist temporal classification loss: A. Graves et al., Connectionist temporal classification (2006).

A labelling is extended by blanks before, between and after its labels; alpha is the likelihood of the beginnings of the
extended labelling by time, beta that of its ends. All is kept as logarithms, for all sequences at once.
"""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.array_library.indexing import add_at, check_index
from server.engine.device import cancellation
from server.engine.registry import implements
from telegrad_protocol.errors import ArgumentError, NotSupportedError
from telegrad_protocol.ops.layers import ctc as ops


def _extended(xp, targets, target_lengths, classes, blank):
    """The extended labellings, where a label may follow the one before without a blank, and which states exist."""
    batch, length = targets.shape
    labels = xp.full((batch, 2 * length + 1), blank, np.int64)
    exists = xp.arange(length) < target_lengths[:, None]
    labels[:, 1::2] = xp.where(exists, targets, blank)
    check_index("ctc_loss", labels, classes, "labels")
    skips = xp.zeros(labels.shape, bool)
    if length > 1:
        skips[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return labels, skips, xp.arange(2 * length + 1) < 2 * target_lengths[:, None] + 1


def _check_lengths(name, lengths, most, what):
    """Refuse lengths of sequences that are negative, or larger than what there is of each."""
    for length in (int(lengths.min()), int(lengths.max())) if lengths.size else ():
        if not 0 <= length <= most:
            raise ArgumentError(
                f"ctc_loss: Expected {name} to have value at {'least 0' if length < 0 else f'most {most}'}, but got "
                f"value {length}: they are bounded by {what}"
            )


def _shifted(xp, values, count):
    """The values of states ``count`` places before; after, if it is negative."""
    result = xp.full_like(values, -np.inf)
    if count > 0:
        result[:, count:] = values[:, :-count]
    else:
        result[:, :count] = values[:, -count:]
    return result


def _loss_gradient(grad_loss, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank, zero_infinity):
    return F._ctc_loss_backward(
        grad_loss, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank, zero_infinity
    )


@implements(ops._ctc_loss, log_probs=_loss_gradient)
def _ctc_loss(xp, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, *, out):
    loss, log_alpha = out
    _check_lengths("input_lengths", input_lengths, log_probs.shape[0], "the time steps")
    _check_lengths("target_lengths", target_lengths, targets.shape[1], "the labels of a target")
    labels, skips, exists = _extended(xp, targets, target_lengths, log_probs.shape[2], blank)
    alpha = xp.full(labels.shape, -np.inf, log_probs.dtype)
    alpha[:, :2] = 0
    for step in range(log_probs.shape[0]):
        if cancellation.requested:
            cancellation.stop()
        own = xp.take_along_axis(log_probs[step], labels, axis=1)
        if step:
            before = xp.logaddexp(alpha, _shifted(xp, alpha, 1))
            skipped = xp.where(skips, _shifted(xp, alpha, 2), -np.inf)
            moved = xp.logaddexp(before, skipped) + own
            alpha = xp.where((step < input_lengths)[:, None] & exists, moved, alpha)
        else:
            alpha = xp.where(exists, alpha + own, -np.inf)
        log_alpha[step] = alpha
    last = (2 * target_lengths)[:, None]
    ends = xp.take_along_axis(alpha, xp.concatenate([xp.maximum(last - 1, 0), last], axis=1), axis=1)
    ends[:, 0] = xp.where(target_lengths > 0, ends[:, 0], -np.inf)
    loss[...] = -xp.logaddexp(ends[:, 0], ends[:, 1])
    empty = xp.where(target_lengths == 0, 0.0, np.inf)
    loss[...] = xp.where(input_lengths > 0, loss, empty)
    if zero_infinity:
        loss[...] = xp.where(loss == np.inf, 0, loss)


def _no_second_derivative(grad, wanted):
    raise NotSupportedError("ctc_loss: the derivative for '_ctc_loss_backward' is not implemented")


@implements(ops._ctc_loss_backward, grad_loss=_no_second_derivative, log_probs=_no_second_derivative)
def _ctc_loss_backward(
    xp, grad_loss, log_probs, targets, input_lengths, target_lengths, loss, log_alpha, blank, zero_infinity, *, out
):
    labels, skips, exists = _extended(xp, targets, target_lengths, log_probs.shape[2], blank)
    steps, batch, classes = log_probs.shape
    rows = xp.arange(batch)[:, None]
    states = xp.arange(labels.shape[1])
    last = 2 * target_lengths[:, None]
    ends = (states == last) | ((states == last - 1) & (last > 0))
    may_skip = xp.zeros_like(skips)
    may_skip[:, :-2] = skips[:, 2:]
    beta = xp.full(labels.shape, -np.inf, log_probs.dtype)
    for step in reversed(range(steps)):
        own = xp.take_along_axis(log_probs[step], labels, axis=1)
        after = xp.logaddexp(beta, _shifted(xp, beta, -1))
        moved = xp.logaddexp(after, xp.where(may_skip, _shifted(xp, beta, -2), -np.inf)) + own
        starts = (step == input_lengths - 1)[:, None]
        moved = xp.where(starts, xp.where(ends, own, -np.inf), moved)
        beta = xp.where((step < input_lengths)[:, None] & exists, moved, -np.inf)
        share = log_alpha[step] + beta + loss[:, None] - own  # minus infinity where a state is not reached
        likely = xp.where(xp.isfinite(share), xp.exp(share), 0)
        by_class = xp.zeros((batch, classes), log_probs.dtype)
        add_at(xp, by_class, (rows, labels), likely)
        gradient = (xp.exp(log_probs[step]) - by_class) * grad_loss[:, None]
        out[step] = xp.where((step < input_lengths)[:, None], gradient, 0)
    is_lost = ~(xp.isfinite(log_alpha[-1]) & ends).any(axis=1)
    is_real = xp.arange(steps)[:, None] < input_lengths
    out[...] = xp.where((is_real & is_lost)[:, :, None], 0.0 if zero_infinity else np.nan, out)
