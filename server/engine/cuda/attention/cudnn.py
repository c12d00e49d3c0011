"""Attention by cuDNN's fused kernels, forward and backward, for half precision."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime import cudnn_graph
from server.engine.cuda.runtime.cudnn_graph import Execution, Graph, build
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import Request
from server.engine.ops.layers.attention import suits_cudnn
from server.engine.registry import prepares
from server.engine.value import Backend, Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import attention as ops
from telegrad_protocol.ops.layers.attention import result_of


def _operand(graph: Graph, meta: Meta) -> Any:
    return graph.input(meta.shape, meta.strides, meta.dtype)


def _statistic(meta: Meta) -> tuple[Any, ...]:
    """Shape, strides and type of one number per row, with the dimension of one that cuDNN has there."""
    return (*meta.shape, 1), (*meta.strides, 1), meta.dtype


def _causal_options(is_causal: bool) -> dict[str, Any]:
    """The options of a causal mask: row i attends to columns 0 to i."""
    if not is_causal:
        return {}
    return {"diagonal_alignment": cudnn_graph.library.diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0}


def _suits(query: Meta, key: Meta, value: Meta, bias: Meta | None) -> bool:
    """Whether cuDNN takes these operands; a mask must be a bias of full size."""
    if bias is not None:
        size = (query.shape[2], key.shape[2])
        if bias.dtype is not query.dtype or bias.ndim != 4 or bias.shape[2:] != size or not bias.is_contiguous:
            return False
    return suits_cudnn(query, key, value) and (bias is None or cudnn_graph.is_aligned(bias))


def takes(query: Meta, key: Meta, value: Meta, bias: Meta | None) -> bool:
    """Whether cuDNN is there, and may have plans for these operands."""
    return cudnn_graph.is_available() and _suits(query, key, value, bias)


def _bias(graph: Graph, meta: Meta | None) -> dict[str, Any]:
    return {} if meta is None else {"bias": _operand(graph, meta)}


def _dropout(graph: Graph, dropout_p: float) -> dict[str, Any]:
    """The options that drop weights, by two numbers in device memory: operands of the graph."""
    if not dropout_p:
        return {}
    one = (1, 1, 1, 1)
    return {"dropout": (dropout_p, graph.input(one, one, dtypes.int64), graph.input(one, one, dtypes.int64))}


class _Problem(NamedTuple):
    """Which attention a graph computes; ``mask`` is what is added to scores."""

    query: Meta
    key: Meta
    value: Meta
    mask: Meta | None
    is_causal: bool
    scale: float
    dropout_p: float = 0.0

    @property
    def fits(self) -> bool:
        return _suits(self.query, self.key, self.value, self.mask)

    def inputs(self, graph: Graph) -> tuple[list[Any], dict[str, Any]]:
        """Query, key and value, and the options that ``sdpa`` and ``sdpa_backward`` share."""
        operands = [_operand(graph, meta) for meta in (self.query, self.key, self.value)]
        return operands, {"attn_scale": self.scale, **_causal_options(self.is_causal)}

    def extras(self, graph: Graph) -> dict[str, Any]:
        """The options that are operands too, which come after all others."""
        return {**_bias(graph, self.mask), **_dropout(graph, self.dropout_p)}


def forward(request: Request) -> Launch | None:
    """The launch of a plan; None where cuDNN has none."""
    query, key, value, mask, is_causal, scale, trains = request.args
    return _forward(request, _Problem(query, key, value, mask, is_causal, scale), trains)


def _prepare_dropout(request: Request) -> Launch | None:
    query, key, value, mask, _, dropout_p, is_causal, scale, trains = request.args
    problem = _Problem(query, key, value, mask, is_causal, scale, dropout_p)
    output, logsumexp = request.outs
    results = tuple([result_of(meta, meta.shape) for meta in (query, key, value)])
    choose = partial(_backward_graph, request.backend, problem, results, output, logsumexp)
    if trains and choose(cudnn_graph.is_deterministic()) is None:
        return None
    return _forward(request, problem, trains)


def _forward(request: Request, problem: _Problem, trains: bool) -> Launch | None:
    if not problem.fits:
        return None
    output, logsumexp = request.outs

    def describe(graph: Graph) -> None:
        (q, k, v), options = problem.inputs(graph)
        extras = problem.extras(graph)
        result, statistic = graph.graph.sdpa(q=q, k=k, v=v, generate_stats=trains, **options, **extras)
        graph.result(result, output.shape, output.strides, output.dtype)
        if trains:
            graph.result(statistic, *_statistic(logsumexp))

    execution = build("attention", request.backend, problem.query.dtype, describe)
    if execution is None:
        return None
    inputs, results = 3 if problem.mask is None else 4, 2 if trains else 1
    drops = problem.dropout_p > 0

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        pointers = [pointer(value) for value in args[:inputs]]
        execution(*pointers, *(_state(args[4]) if drops else ()), *[pointer(value) for value in outs[:results]])

    return launch


def _state(value: Value) -> tuple[int, int]:
    """Where seed and offset of dropout are."""
    first = pointer(value)
    return first, first + dtypes.int64.itemsize


@lru_cache(maxsize=1 << 10)
def _backward_graph(
    backend: Backend, problem: _Problem, results: tuple[Meta, ...], output: Meta, logsumexp: Meta, deterministic: bool
) -> Execution | None:
    """The graph that makes the gradients of query, key and value, which lie as ``results`` say."""
    if not problem.fits or not cudnn_graph.is_aligned(output):
        return None

    def describe(graph: Graph) -> None:
        d = _operand(graph, output)
        (q, k, v), options = problem.inputs(graph)
        o, statistic = _operand(graph, output), graph.input(*_statistic(logsumexp))
        options |= {**problem.extras(graph), "use_deterministic_algorithm": deterministic}
        gradients = graph.graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=d, stats=statistic, **options)
        for tensor, meta in zip(gradients, results, strict=True):
            graph.result(tensor, meta.shape, meta.strides, meta.dtype)

    return build("attention backward", backend, problem.query.dtype, describe)


def backward(request: Request) -> Launch | None:
    """The same for the gradients of query, key and value."""
    grad, query, key, value, mask, output, logsumexp, is_causal, scale = request.args
    problem = _Problem(query, key, value, mask, is_causal, scale)
    return _backward(request, problem, grad, output, logsumexp, (0, 1, 2, 3, 5, 6, *(() if mask is None else (4,))))


def _prepare_dropout_backward(request: Request) -> Launch | None:
    grad, query, key, value, mask, _, output, logsumexp, dropout_p, is_causal, scale = request.args
    problem = _Problem(query, key, value, mask, is_causal, scale, dropout_p)
    return _backward(request, problem, grad, output, logsumexp, (0, 1, 2, 3, 6, 7, *(() if mask is None else (4,))))


def _backward(
    request: Request, problem: _Problem, grad: Meta, output: Meta, logsumexp: Meta, order: tuple[int, ...]
) -> Launch | None:
    """``order``: the places among the arguments of the graph's operands but for those of dropout."""
    if grad.strides != output.strides or not cudnn_graph.is_aligned(grad):
        return None
    choose = cache(partial(_backward_graph, request.backend, problem, request.outs, output, logsumexp))
    if choose(cudnn_graph.is_deterministic()) is None:
        return None
    drops = problem.dropout_p > 0

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        execution = choose(cudnn_graph.is_deterministic()) or choose(False)  # the session may ask at any time
        state = _state(args[5]) if drops else ()
        execution(*[pointer(args[i]) for i in order], *state, *map(pointer, outs))  # type: ignore[misc]

    return launch


if cudnn_graph.is_available():
    prepares(ops._attention_dropout, keys.CUDA, deferrable=True)(_prepare_dropout)
    prepares(ops._attention_dropout_backward, keys.CUDA, deferrable=True)(_prepare_dropout_backward)
