"""Contracts of the connectionist temporal classification loss."""

from __future__ import annotations

from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op


def _check(name: str, log_probs: Meta, targets: Meta, input_lengths: Meta, target_lengths: Meta, blank: int) -> None:
    if log_probs.ndim != 3 or not log_probs.numel:
        raise ShapeError(f"{name}: expected elements of (T, N, C), got {log_probs}")
    if log_probs.dtype.itemsize < 4 or not log_probs.dtype.is_floating_point:
        raise DTypeError(f"{name}: expected float32 or float64, got {log_probs}")
    batch, classes = log_probs.shape[1:]
    if (
        targets.ndim != 2
        or targets.shape[0] != batch
        or any(m.shape != (batch,) for m in (input_lengths, target_lengths))
    ):
        raise ShapeError(f"{name}: expected targets and lengths of {batch} sequences, got {targets}, {input_lengths}")
    if any(meta.dtype is not int64 for meta in (targets, input_lengths, target_lengths)):
        raise DTypeError(f"{name}: targets and lengths must be int64, got {targets}, {input_lengths}, {target_lengths}")
    if not 0 <= blank < classes:
        raise ArgumentError(f"{name}: blank must be in label range, which is 0 to {classes - 1}, got {blank}")


@op(
    out=False, method=False, returns=("loss", "log_alpha"), no_grad=("targets", "input_lengths", "target_lengths"),
)  # fmt: skip
def _ctc_loss(
    log_probs: Meta, targets: Meta, input_lengths: Meta, target_lengths: Meta, blank: int, zero_infinity: bool
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute minus the log-likelihood of each labelling (n, s) from log-probabilities (t, n, c).

    ``log_alpha`` (t, n, 2 s + 1) has the log-likelihoods of all beginnings, which backward needs.
    """
    _check("_ctc_loss", log_probs, targets, input_lengths, target_lengths, blank)
    steps, batch, _ = log_probs.shape
    return log_probs.like((batch,)), log_probs.like((steps, batch, 2 * targets.shape[1] + 1))


@op(
    out=False, method=False,
    no_grad=("targets", "input_lengths", "target_lengths", "loss", "log_alpha"),
)  # fmt: skip
def _ctc_loss_backward(
    grad_loss: Meta, log_probs: Meta, targets: Meta, input_lengths: Meta, target_lengths: Meta, loss: Meta,
    log_alpha: Meta, blank: int, zero_infinity: bool,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``_ctc_loss`` by the log-probabilities, as those of a softmax."""
    _check("_ctc_loss_backward", log_probs, targets, input_lengths, target_lengths, blank)
    steps, batch, _ = log_probs.shape
    expected = (steps, batch, 2 * targets.shape[1] + 1)
    if grad_loss.shape != (batch,) or loss.shape != (batch,) or log_alpha.shape != expected:
        raise ShapeError(f"_ctc_loss_backward: {grad_loss}, {loss} and {log_alpha} are not of {batch} labellings")
    if any(meta.dtype is not log_probs.dtype for meta in (grad_loss, loss, log_alpha)):
        raise DTypeError(f"_ctc_loss_backward: expected {log_probs.dtype.name}, got {grad_loss}, {loss}, {log_alpha}")
    return log_probs.like()
