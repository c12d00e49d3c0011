"""Convolutions by cuDNN: forward, and the gradients of input and weight, for row-major and channels-last tensors.

All operands and the result of a graph have one memory format; operands in another one are copied first, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine import context, keys
from server.engine import functional as F
from server.engine.context import CudnnModes
from server.engine.cuda.runtime import cudnn_graph
from server.engine.cuda.runtime.cudnn_graph import Execution, Graph, build, is_aligned
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.switches import Switches
from server.engine.value import Backend, Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size, contiguous_strides
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.layers import convolution as ops

from .columns import by_columns, transposed_by_columns, weight_by_columns
from .new_sizes import begun, flat, slide_of

_TYPES = (dtypes.bfloat16, dtypes.float16, dtypes.float32)
Numbers = dict[str, list[int]]
Describe = Callable[[Graph], None]


class _Format:
    """One memory format for all tensors of a convolution; sequences are images of one line."""

    def __init__(self, *metas: Meta) -> None:
        self._innermost = any(is_channels_last(m.shape, m.strides) for m in metas)

    def strides(self, shape: Size) -> Size:
        """Dense strides in this format."""
        return channels_last_strides(shape) if self._innermost and len(shape) > 3 else contiguous_strides(shape)

    def fits(self, meta: Meta) -> bool:
        """Whether a tensor has this format already."""
        wanted = self.strides(meta.shape)
        rows = zip(meta.shape, meta.strides, wanted, strict=True)
        return is_aligned(meta) and all(given == step for size, given, step in rows if size != 1)

    def described(self, shape: Size, dtype: DType) -> tuple[Size, Size, DType]:
        """A tensor as cuDNN is told of it."""
        shape = shape if len(shape) > 3 else (*shape[:2], 1, shape[2])
        return shape, self.strides(shape), dtype


def _numbers(padding: Size, stride: Size, dilation: Size) -> Numbers:
    """The attributes of a graph's convolution, of at least two dimensions."""
    lead = (0,) if len(stride) == 1 else ()
    ones = (1,) if lead else ()
    pads = [*lead, *padding]
    return {
        "pre_padding": pads, "post_padding": pads, "stride": [*ones, *stride], "dilation": [*ones, *dilation],
    }  # fmt: skip


def _spread(values: tuple[Size, ...], dims: int) -> list[Size]:
    return [ops.spread("convolution", "numbers", v, dims) for v in values]


def _suits(request: Request) -> bool:
    metas = [m for m in (*request.args, *request.outs) if isinstance(m, Meta)]
    return metas[0].dtype in _TYPES and all(m.numel for m in metas)


@prepares(ops.convolution, keys.CUDA, deferrable=True)
def _prepare(request: Request) -> Launch | None:
    if not cudnn_graph.is_available() or not _suits(request):
        return None
    input, weight, bias, stride, padding, dilation, transposed, _, groups = request.args
    (out,) = request.outs
    layout = _Format(input, weight)
    stride, padding, dilation = _spread((stride, padding, dilation), weight.ndim - 2)
    numbers = _numbers(padding, stride, dilation)

    def describe(graph: Graph) -> None:
        x, w = (graph.input(*layout.described(m.shape, m.dtype)) for m in (input, weight))
        if transposed:
            result = graph.graph.conv_dgrad(loss=x, filter=w, **numbers)
        else:
            result = graph.graph.conv_fprop(image=x, weight=w, **numbers)
        graph.result(result, *layout.described(out.shape, out.dtype))

    def planned() -> Launch | None:
        return _prepared("convolution", request, describe, layout, (input, weight), out)

    slide = slide_of(weight.shape[2:], dilation, padding, stride)
    begin = transposed_by_columns if transposed else by_columns
    kernel = (weight.shape, slide, transposed)
    run = begun(
        request, groups, kernel, lambda: begin(request.backend, flat(input), weight, slide, flat(out)), planned
    )  # fmt: skip
    return run if run is None or bias is None else _with_bias(run)


@prepares(ops._convolution_weight_backward, keys.CUDA, deferrable=True)
def _prepare_weight_backward(request: Request) -> Launch | None:
    if not cudnn_graph.is_available() or not _suits(request):
        return None
    grad, input, _, stride, padding, dilation, groups, _ = request.args
    (out,) = request.outs
    layout = _Format(input, grad)
    numbers = _numbers(padding, stride, dilation)

    def describe(graph: Graph) -> None:
        d, x = (graph.input(*layout.described(m.shape, m.dtype)) for m in (grad, input))
        result = graph.graph.conv_wgrad(image=x, loss=d, **numbers)
        graph.result(result, *layout.described(out.shape, out.dtype))

    def planned() -> Launch | None:
        return _prepared("convolution weight backward", request, describe, layout, (grad, input), out)

    slide = slide_of(out.shape[2:], dilation, padding, stride)
    pictures = flat(grad), flat(input)
    return begun(
        request, groups, (out.shape, slide), lambda: weight_by_columns(request.backend, *pictures, slide, out), planned
    )  # fmt: skip


def _prepared(
    name: str, request: Request, describe: Describe, layout: _Format, operands: tuple[Meta, ...], out: Meta
) -> Launch | None:
    """The launch of a graph, its operands brought into its format; None where cuDNN has none."""
    chosen = _Choice(name, request.backend, operands[0].dtype, describe)
    if chosen.current() is None:
        return None
    moved = tuple([None if layout.fits(m) else layout.strides(m.shape) for m in operands])
    made = None if layout.fits(out) else out.like(strides=layout.strides(out.shape))
    is_direct = made is None and not any(moved)

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        run = chosen.current()
        if run is None:
            _run_generic(request, args, outs[0])
        elif is_direct:
            run(pointer(args[0]), pointer(args[1]), pointer(outs[0]))
        else:
            given = [_in_layout(value, strides) for value, strides in zip(args, moved, strict=False)]
            _run_moved(run, request.backend, given, made, outs[0])

    return launch


def _run_moved(run: Execution, backend: Backend, operands: list[Value], made: Meta | None, out: Value) -> None:
    target = out if made is None else backend.empty(made)
    run(pointer(operands[0]), pointer(operands[1]), pointer(target))
    if made is not None:
        F.copy_(out.alias(), target)


def _run_generic(request: Request, args: tuple[Any, ...], out: Value) -> None:
    """Run the generic kernel, because the session's modes rule out all of cuDNN's plans."""
    xp, op = request.backend.xp, request.op
    request.backend.flush()
    arrays = [arg.array.astype(xp.float32) if arg.__class__ is Value else arg for arg in args]
    result = xp.empty(out.shape, xp.float32)
    OPERATORS[op.name].kernels[keys.CUDA].function(xp, *arrays, out=result)
    request.backend.store(out.array, result)


def _in_layout(value: Value, strides: Size | None) -> Value:
    return value if strides is None else F._in_layout(value.alias(), strides)


class _Choice:
    """The graphs of one convolution by the session's modes; a graph is built when it is first needed."""

    def __init__(self, name: str, backend: Backend, dtype: DType, describe: Describe) -> None:
        self._name, self._backend, self._dtype, self._describe = name, backend, dtype, describe
        self._built: dict[tuple[str, ...], Execution | None] = {}
        self._modes: tuple[CudnnModes, Switches] | None = None
        self._chosen: Execution | None = None

    def current(self) -> Execution | None:
        """The graph for the current modes; None if there is none."""
        modes = (context.current.cudnn, context.current.switches)
        if modes != self._modes:
            if not modes[0].enabled:
                self._modes, self._chosen = modes, None
                return None
            avoided = _avoided(self._dtype)
            if avoided not in self._built:
                self._built[avoided] = build(self._name, self._backend, self._dtype, self._describe, avoid=avoided)
            self._modes, self._chosen = modes, self._built[avoided]
        return self._chosen


def _avoided(dtype: DType) -> tuple[str, ...]:
    """The numerical notes of plans that the session's modes rule out."""
    avoided = ("NONDETERMINISTIC",) if cudnn_graph.is_deterministic() else ()
    exact = dtype is dtypes.float32 and not context.current.cudnn.allow_tf32
    return (*avoided, "TENSOR_CORE") if exact else avoided


def _with_bias(launch: Launch) -> Launch:
    def run(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        launch((*args[:2], None, *args[3:]), outs)
        out, bias = outs[0].alias(), args[2].alias()
        F.add_(out, F.reshape(bias, (bias.numel, *(1,) * (out.ndim - 2))))

    return run
