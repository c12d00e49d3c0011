"""The cross-entropy of probabilities on GPUs: what is no probability is reported while the host goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

from server.engine import keys
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.geometry import blocks
from server.engine.cuda.runtime.launch import load, nothing, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE
from server.engine.operators import Request
from server.engine.ops.layers import losses as implementations
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.ops.layers import losses as ops

from .rowwise import row_major

_THREADS = 256
TEXT = r"""
// -target * log(input) - (1 - target) * log(1 - input), with logarithms of at least -100, in the type T.
template <class E, class T>
__device__ __forceinline__ void cross_entropy_of_probabilities(
    E* out, const E* input, const E* target, fault_record* record, u64 tag, i64 count) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const T p = cast<T>(input[i]), q = cast<T>(target[i]);
    if (!(p >= (T)0 && p <= (T)1)) report(record, tag, i, 0);
    if (!(q >= (T)0 && q <= (T)1)) report(record, tag, i, 1);
    const T positive = log(p), negative = log1p(-p);
    out[i] = cast<E>(
        (q - (T)1) * (negative < (T)-100 ? (T)-100 : negative) - q * (positive < (T)-100 ? (T)-100 : positive));
}
"""


class _Probabilities(NamedTuple):
    """What is checked; ``place`` 0 is the input, and 1 the target."""

    def error(self, index: int, place: int) -> ArgumentError:
        """The error that the CPU raises."""
        return ArgumentError(implementations.NO_PROBABILITIES.format(("input", "target")[place]))


@prepares(ops._bce, keys.CUDA)
@row_major
def cross_entropy(request: Request) -> Launch | None:
    """One thread for an element; operands that broadcast, or are of other types, are for the generic kernel."""
    input, target = request.args
    out, backend = request.outs[0], request.backend
    if not input.dtype is target.dtype is out.dtype or not input.shape == target.shape == out.shape:
        return None
    if not out.numel:
        return nothing
    element, wide = CTYPES[out.dtype], "double" if out.dtype is dtypes.float64 else "float"
    text = f"""{PRELUDE}{FAULTS}{TEXT}extern "C" __global__ void __launch_bounds__({_THREADS}) losses(
    {element}* out, const {element}* input, const {element}* target, fault_record* record, u64 tag, i64 count) {{
    cross_entropy_of_probabilities<{element}, {wide}>(out, input, target, record, tag, count);
}}"""
    fire = load(text, "losses").prepare(blocks(out.numel, _THREADS), _THREADS, "PPPPQ", [("i64", out.numel)])
    check = _Probabilities()

    def launch(args: Any, outs: Any) -> None:
        record, tag = record_of(backend), expect(check)
        fire(backend.stream, pointer(outs[0]), pointer(args[0]), pointer(args[1]), record.pointer, tag)
        if tag:
            record.mark()

    return launch
