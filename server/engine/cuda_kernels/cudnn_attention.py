"""Attention by cuDNN's fused kernels, forward and backward, for half precision."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import attention as ops

from .. import keys
from ..operators import Launch, Request, prepares
from ..ops.attention import suits_cudnn
from ..value import Value
from . import cudnn_graph
from .cudnn_graph import Graph, build
from .launch import pointer


def _operand(graph: Graph, meta: Meta) -> Any:
    return graph.input(meta.shape, meta.strides, meta.dtype)


def _statistic(meta: Meta) -> tuple[Any, ...]:
    """Shape, strides and type of one number per row, with the dimension of one that cuDNN has there."""
    return (*meta.shape, 1), (*meta.strides, 1), meta.dtype


def _hiding(is_causal: bool) -> dict[str, Any]:
    """The options that let row i see columns up to i."""
    if not is_causal:
        return {}
    return {"diagonal_alignment": cudnn_graph.cudnn.diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0}


def _prepare_forward(request: Request) -> Launch | None:
    query, key, value, mask, is_causal, scale, trains = request.args
    if mask is not None or not suits_cudnn(query, key, value):
        return None
    output, logsumexp = request.outs

    def describe(graph: Graph) -> None:
        q, k, v = (_operand(graph, m) for m in (query, key, value))
        found, statistic = graph.graph.sdpa(
            q=q, k=k, v=v, attn_scale=scale, generate_stats=trains, **_hiding(is_causal)
        )
        graph.result(found, output.shape, output.strides, output.dtype)
        if trains:
            graph.result(statistic, *_statistic(logsumexp))

    execution = build("attention", request.backend, query.dtype, describe)
    if execution is None:
        return None

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        execution(*[pointer(value) for value in (*args[:3], *(outs if trains else outs[:1]))])

    return launch


def _prepare_backward(request: Request) -> Launch | None:
    grad, query, key, value, mask, output, logsumexp, is_causal, scale = request.args
    if mask is not None or not suits_cudnn(query, key, value) or grad.strides != output.strides:
        return None
    if not cudnn_graph.is_aligned(grad) or not cudnn_graph.is_aligned(output):
        return None

    def describe(graph: Graph) -> None:
        d, q, k, v, o = (_operand(graph, m) for m in (grad, query, key, value, output))
        statistic = graph.input(*_statistic(logsumexp))
        found = graph.graph.sdpa_backward(
            q=q, k=k, v=v, o=o, dO=d, stats=statistic, attn_scale=scale, **_hiding(is_causal)
        )
        for tensor, meta in zip(found, request.outs, strict=True):
            graph.result(tensor, meta.shape, meta.strides, meta.dtype)

    execution = build("attention backward", request.backend, query.dtype, describe)
    if execution is None:
        return None

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        execution(*[pointer(value) for value in (*args[:4], args[5], args[6], *outs)])

    return launch


if cudnn_graph.is_available():
    prepares(ops._attention, keys.CUDA)(_prepare_forward)
    prepares(ops._attention_backward, keys.CUDA)(_prepare_backward)
