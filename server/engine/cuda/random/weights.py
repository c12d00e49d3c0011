"""Draws on GPUs by way of others: indices by weights, which the device checks meanwhile, and normal numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.rows.rowwise import row_major
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.ops import random as implementations
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.ops import random as ops

_THREADS = 256
TEXT = r"""
// Looks whether the weights of a row are finite and not negative, and one of them not 0. A block has a row.
template <class E>
__device__ __forceinline__ void check_weights(
    const E* weights, fault_record* record, u64 tag, i64 columns) {
    const E* row = weights + (i64)blockIdx.x * columns;
    int positive = 0;
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) {
        const double weight = (double)cast<float_or_double<E>>(row[i]);
        if (!(weight >= 0) || isinf(weight)) report(record, tag, i, 0);
        positive |= weight > 0;
    }
    if (!__syncthreads_or(positive) && !threadIdx.x) report(record, tag, (i64)blockIdx.x, 1);
}
"""


class _Weights(NamedTuple):
    """What is checked; ``place`` 0 is a weight, and 1 a row."""

    def error(self, index: int, place: int) -> ArgumentError:
        """The error that the CPU raises."""
        return ArgumentError(implementations.NO_WEIGHTS if place else implementations.BAD_WEIGHTS)


@prepares(ops.multinomial, keys.CUDA)
@row_major
def multinomial(request: Request) -> Launch | None:
    weights, num_samples, replacement = request.args[:3]
    if not weights.numel:
        return None
    backend, columns, element = request.backend, weights.shape[-1], CTYPES[weights.dtype]
    wide = "double" if weights.dtype is dtypes.float64 else "float"
    text = f"""{PRELUDE}{FAULTS}template <class E> using float_or_double = {wide};
{TEXT}extern "C" __global__ void __launch_bounds__({_THREADS}) look(
    const {element}* weights, fault_record* record, u64 tag, i64 columns) {{
    check_weights<{element}>(weights, record, tag, columns);
}}"""
    constants = [("i64", columns)]
    look = load(text, "look").prepare(weights.numel // columns, _THREADS, "PPQ", constants)
    check, draw = _Weights(), _with_replacement if replacement else _without_replacement

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        look(backend.stream, pointer(args[0]), record.pointer, tag)
        if tag:
            record.mark()
        F.copy_(outs[0].alias(), draw(F._to_copy(args[0].alias(), dtype=dtypes.float64), num_samples))

    return launch


def _with_replacement(weights: Value, count: int) -> Value:
    """Indices of uniform numbers among the cumulative weights, as on the host: (rows, count)."""
    limits = F.cumsum(weights, -1)
    drawn = F.rand((*weights.shape[:-1], count), dtype=weights.dtype, device=weights.device)
    return F.searchsorted(limits, F.mul(drawn, F.narrow(limits, -1, -1, 1)), right=True)  # type: ignore[no-any-return]


def _without_replacement(weights: Value, count: int) -> Value:
    """The smallest of exponential variables whose rates are the weights, as on the host: (rows, count)."""
    ratios = F.div(F.exponential_(F.empty_like(weights)), weights)
    if count == 1:
        return F.argmin(ratios, -1, True)  # type: ignore[no-any-return]
    return F.topk(ratios, count, -1, False)[1]  # type: ignore[no-any-return]


@prepares(ops.normal_tensor, keys.CUDA)
@prepares(ops.normal_std, keys.CUDA)
def normal(request: Request) -> Launch:
    """Numbers of the standard normal distribution, which are scaled and moved."""

    def launch(args: Any, outs: Any) -> None:
        mean, std = [given.alias() if given.__class__ is Value else given for given in args[:2]]
        F.add_(F.mul_(F.normal_(outs[0].alias()), std), mean)

    return launch
