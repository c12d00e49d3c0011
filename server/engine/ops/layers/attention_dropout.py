"""Fused attention with dropout. Only the device's library can tell which weights it drops, from a seed and an offset.

There is no generic kernel: where no backend prepares a kernel for the operands, ``NotSupportedError`` is raised, and
``scaled_dot_product_attention`` falls back to the math implementation.
"""

from __future__ import annotations

from typing import Any, NoReturn

from server.engine import functional as F
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.engine.registry import implements
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.ops.layers import attention as ops

_BACKWARD = OPERATORS["_attention_dropout_backward"]


def _no_kernel(what: str) -> NotSupportedError:
    return NotSupportedError(
        f"scaled_dot_product_attention: no kernel computes {what} of these operands with dropout on a GPU; compute it "
        "in float32, or without dropout"
    )


def _gradients(
    grad_output, query, key, value, attn_mask, state, output, logsumexp, dropout_p, is_causal, scale
):  # fmt: skip
    if grad_output.meta.strides != output.meta.strides or grad_output.meta.offset:
        grad_output = F._in_layout(grad_output, output.meta.strides)  # the kernel takes one layout for both, aligned
    operands = (grad_output, query, key, value, attn_mask, state, output, logsumexp)
    return dispatch(_BACKWARD, (*operands, dropout_p, is_causal, scale))


def _gradient(place: int) -> Any:
    def formula(grad_output, query, key, value, attn_mask, state, output, logsumexp, dropout_p, is_causal, scale):
        operands = (grad_output, query, key, value, attn_mask, state, output, logsumexp)
        return _gradients(*operands, dropout_p, is_causal, scale)[place]

    return formula


@implements(
    ops._attention_dropout, query=_gradient(0), key=_gradient(1), value=_gradient(2), together=_gradients
)  # fmt: skip
def _attention_dropout(xp, query, key, value, attn_mask, state, dropout_p, is_causal, scale, trains, *, out):
    raise _no_kernel("the weights")


def _refuse(grads) -> NoReturn:
    raise _no_kernel("gradients of the gradients")


@implements(
    ops._attention_dropout_backward, grad_output=_refuse, query=_refuse, key=_refuse, value=_refuse
)  # fmt: skip
def _attention_dropout_backward(
    xp, grad_output, query, key, value, attn_mask, state, output, logsumexp, dropout_p, is_causal, scale, *, out
):
    raise _no_kernel("the gradients")
