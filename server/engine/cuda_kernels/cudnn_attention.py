"""Attention by cuDNN's fused kernels, forward and backward, for half precision."""

from __future__ import annotations

from functools import cache
from typing import Any

from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import attention as ops

from .. import keys
from ..operators import Launch, Request, prepares
from ..ops.attention import suits_cudnn
from ..value import Value
from . import cudnn_graph
from .cudnn_graph import Execution, Graph, build
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
    return {"diagonal_alignment": cudnn_graph.library.diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0}


def _suits(query: Meta, key: Meta, value: Meta, bias: Meta | None) -> bool:
    """Whether cuDNN takes these; a mask as numbers in full size that are added to the scores."""
    if bias is not None:
        size = (query.shape[2], key.shape[2])
        if bias.dtype is not query.dtype or bias.ndim != 4 or bias.shape[2:] != size or not bias.is_contiguous:
            return False
    return suits_cudnn(query, key, value) and (bias is None or cudnn_graph.is_aligned(bias))


def _bias(graph: Graph, meta: Meta | None) -> dict[str, Any]:
    return {} if meta is None else {"bias": _operand(graph, meta)}


def _prepare_forward(request: Request) -> Launch | None:
    query, key, value, mask, is_causal, scale, trains = request.args
    if not _suits(query, key, value, mask):
        return None
    output, logsumexp = request.outs

    def describe(graph: Graph) -> None:
        q, k, v = (_operand(graph, m) for m in (query, key, value))
        found, statistic = graph.graph.sdpa(
            q=q, k=k, v=v, attn_scale=scale, generate_stats=trains, **_hiding(is_causal), **_bias(graph, mask)
        )
        graph.result(found, output.shape, output.strides, output.dtype)
        if trains:
            graph.result(statistic, *_statistic(logsumexp))

    execution = build("attention", request.backend, query.dtype, describe)
    if execution is None:
        return None

    inputs, results = 3 if mask is None else 4, 2 if trains else 1

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        execution(*[pointer(value) for value in (*args[:inputs], *outs[:results])])

    return launch


def _prepare_backward(request: Request) -> Launch | None:
    grad, query, key, value, mask, output, logsumexp, is_causal, scale = request.args
    if not _suits(query, key, value, mask) or grad.strides != output.strides:
        return None
    if not cudnn_graph.is_aligned(grad) or not cudnn_graph.is_aligned(output):
        return None

    def made(deterministic: bool) -> Execution | None:
        def describe(graph: Graph) -> None:
            d, q, k, v, o = (_operand(graph, m) for m in (grad, query, key, value, output))
            statistic = graph.input(*_statistic(logsumexp))
            options = {**_hiding(is_causal), **_bias(graph, mask), "use_deterministic_algorithm": deterministic}
            found = graph.graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=d, stats=statistic, attn_scale=scale, **options)
            for tensor, meta in zip(found, request.outs, strict=True):
                graph.result(tensor, meta.shape, meta.strides, meta.dtype)

        return build("attention backward", request.backend, query.dtype, describe)

    choose = cache(made)  # the session may ask for fixed orders of sums at any time
    if choose(cudnn_graph.is_deterministic()) is None:
        return None
    order = (0, 1, 2, 3, 5, 6, *(() if mask is None else (4,)))

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        execution = choose(cudnn_graph.is_deterministic()) or choose(False)
        execution(*[pointer(args[i]) for i in order], *map(pointer, outs))  # type: ignore[misc]

    return launch


if cudnn_graph.is_available():
    prepares(ops._attention, keys.CUDA, deferrable=True)(_prepare_forward)
    prepares(ops._attention_backward, keys.CUDA, deferrable=True)(_prepare_backward)
