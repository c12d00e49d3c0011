"""Plans of stacks of recurrent layers: cuDNN's descriptors, made once, and what it says of sizes and of weights."""

from __future__ import annotations

import ctypes
import logging
from functools import lru_cache
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime import cudnn_graph
from server.engine.ops.layers.rnn_stack import PLANNERS, Fused, Stack
from server.engine.value import Backend
from telegrad_protocol.ops.layers.rnn import GATES

from . import library

_log = logging.getLogger(__name__)
_PROJECTION = 8
"""The number under which cuDNN has the matrix that projects the output of an LSTM."""
_WIDEST_PERSISTENT = 1024
_PERSISTENT_WIDTHS = 128
_SMALL = {"LSTM": 128, "GRU": 128, "RNN_TANH": 256, "RNN_RELU": 256}
"""Layers of so many cells are small."""


class Plan:
    """One stack as cuDNN is told of it. Calls get a handle that is set to a stream, and addresses as integers."""

    def __init__(self, handle: Any, stack: Stack, math: int, algorithm: int) -> None:
        dtype = library.TYPES[stack.dtype.name]
        count = stack.num_layers * (2 if stack.bidirectional else 1)
        sequences = stack.steps[0]
        lengths = [0] * sequences
        for active in stack.steps:
            for place in range(active):
                lengths[place] += 1
        directions = 2 if stack.bidirectional else 1
        dropout = library.no_dropout(handle)
        layers = library.layers(
            stack.mode, dtype, math, algorithm, stack.features, stack.hidden, stack.outputs, stack.num_layers,
            stack.bidirectional, stack.has_biases, len(set(lengths)) > 1, dropout,
        )  # fmt: skip
        x = library.sequences(dtype, lengths, stack.features)
        y = library.sequences(dtype, lengths, stack.outputs * directions)
        h = library.tensor(dtype, count, sequences, stack.outputs)
        c = library.tensor(dtype, count, sequences, stack.hidden)
        self._descriptors = (dropout, layers, x, y, h, c)
        """What the addresses below belong to; the layers refer to the dropout."""
        self._layers, self._x, self._y, self._h, self._c = [d.address.value for d in self._descriptors[1:]]
        self.weight_bytes = library.weight_bytes(handle, layers)
        self.inference_work, _ = library.temporary_sizes(handle, layers, library.INFERENCE, x)
        self.training_work, self.reserve = library.temporary_sizes(handle, layers, library.TRAINING, x)
        self.order = _order_of_weights(handle, layers, stack, count, self.weight_bytes)

    def forward(
        self, handle: int, x: int, y: int, hx: int, hy: int, cx: int, cy: int, weight: int, work: int, reserve: int
    ) -> None:
        """Run all layers; ``reserve`` is 0 where no backward pass will follow."""
        mode, work_bytes = (
            (library.TRAINING, self.training_work) if reserve else (library.INFERENCE, self.inference_work)
        )
        library.function("cudnnRNNForward", "ppipppppppppppspspsp")(
            handle, self._layers, mode, 0, self._x, x, self._y, y, self._h, hx, hy, self._c, cx, cy,
            self.weight_bytes, weight, work_bytes, work, self.reserve if reserve else 0, reserve,
        )  # fmt: skip

    def backward(
        self, handle: int, y: int, dy: int, dx: int, hx: int, dhy: int, dhx: int, cx: int, dcy: int, dcx: int,
        weight: int, work: int, reserve: int,
    ) -> None:  # fmt: skip
        """Compute the gradients of input and states; overwrites ``reserve``, which ``backward_weights`` reads then."""
        library.function("cudnnRNNBackwardData_v8", "ppppppppppppppppspspsp")(
            handle, self._layers, 0, self._y, y, dy, self._x, dx, self._h, hx, dhy, dhx, self._c, cx, dcy, dcx,
            self.weight_bytes, weight, self.training_work, work, self.reserve, reserve,
        )  # fmt: skip

    def backward_weights(self, handle: int, x: int, hx: int, y: int, gradient: int, work: int, reserve: int) -> None:
        """Add the gradients of all weights to ``gradient``."""
        library.function("cudnnRNNBackwardWeights_v8", "ppipppppppspspsp")(
            handle, self._layers, library.ADD_GRADIENTS, 0, self._x, x, self._h, hx, self._y, y,
            self.weight_bytes, gradient, self.training_work, work, self.reserve, reserve,
        )  # fmt: skip


def _order_of_weights(handle: Any, layers: Any, stack: Stack, count: int, nbytes: int) -> tuple[int, ...]:
    """The weights' places in the list of an operation, in the order in which they lie in cuDNN's memory.

    A weight of several gates is one matrix in both, if the gates follow each other; so they do in all of cuDNN's
    releases. Empty if there are gaps: then the weights cannot be copied one after the other.
    """
    gates = GATES[stack.mode]
    directions = 2 if stack.bidirectional else 1
    is_projected = stack.outputs != stack.hidden
    each = 2 + 2 * stack.has_biases + is_projected
    item, rows = stack.dtype.itemsize, gates * stack.hidden
    found: list[tuple[int, int, int]] = []
    for layer in range(count):
        features = stack.features if layer < directions else stack.outputs * directions
        at_input, bias_input = library.weight_places(handle, layers, layer, 0, nbytes)
        at_hidden, bias_hidden = library.weight_places(handle, layers, layer, gates, nbytes)
        first = layer * each
        found.append((at_input, rows * features * item, first))
        found.append((at_hidden, rows * stack.outputs * item, first + 1))
        if stack.has_biases:
            found += [(bias_input, rows * item, first + 2), (bias_hidden, rows * item, first + 3)]
        if is_projected:
            at_projection, _ = library.weight_places(handle, layers, layer, _PROJECTION, nbytes)
            found.append((at_projection, stack.outputs * stack.hidden * item, first + each - 1))
    found.sort()
    end = 0
    for begin, size, _ in found:
        if begin != end:
            return ()
        end = begin + size
    return tuple([place for _, _, place in found]) if end == nbytes else ()


def plan_of(backend: Backend, stack: Stack) -> Plan | None:
    """The plan for a stack; None where cuDNN has none."""
    if stack.dtype.name not in library.TYPES or not library.is_available():
        return None
    return _plan(backend, stack, _math(stack), _algorithm(stack))


def _math(stack: Stack) -> int:
    if stack.dtype.itemsize == 2:
        return library.TENSOR_OP_MATH
    return library.FMA_MATH if stack.dtype.name == "float32" and not stack.allow_tf32 else library.DEFAULT_MATH


def _algorithm(stack: Stack) -> int:
    """Keep weights in registers over all steps where they fit: small layers, or one of float16 in one direction."""
    if stack.outputs != stack.hidden or len(set(stack.steps)) > 1:
        return library.STANDARD
    if stack.hidden <= _SMALL[stack.mode]:
        return library.PERSIST_STATIC_SMALL
    fits = stack.num_layers == 1 and not stack.bidirectional and stack.hidden <= _WIDEST_PERSISTENT
    even = stack.hidden % _PERSISTENT_WIDTHS == 0 and stack.features % _PERSISTENT_WIDTHS == 0
    if stack.dtype.name == "float16" and fits and even:
        return library.PERSIST_STATIC
    return library.STANDARD


@lru_cache(maxsize=1 << 10)
def _plan(backend: Backend, stack: Stack, math: int, algorithm: int) -> Plan | None:
    try:
        plan = Plan(ctypes.c_void_p(handle_on(backend)), stack, math, algorithm)
    except library.CudnnError as error:
        if algorithm != library.STANDARD:
            return _plan(backend, stack, math, library.STANDARD)
        _log.info("cudnn: no plan for %s: %s", stack, error)
        return None
    return plan if plan.order else None


def handle_on(backend: Any) -> int:
    """The device's handle, set to the backend's current stream."""
    return int(cudnn_graph.handle_of(backend).on(backend.stream))


def _fused(backend: Backend, stack: Stack) -> Fused | None:
    plan = plan_of(backend, stack)
    return None if plan is None else Fused(plan.order, plan.reserve)


PLANNERS[keys.CUDA] = _fused
