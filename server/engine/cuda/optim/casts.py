"""Casts of many tensors in one launch: those that a program makes of its weights, or of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import Launch, load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import CASTS, Joined
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta

from .multi_tensor import CAPACITIES, TEXT, THREADS, parts

_TYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
_LARGEST = 1 << 28
"""Elements of a tensor; the chunks of larger ones are not counted here."""

CASTING = r"""
// The elements of a chunk in another type; vectors are as wide as the larger of both types allows
template <class S, class D, int N>
__device__ __forceinline__ void cast_chunk(const table<2, N>& t, const sizes<N>& s) {
    const chunk_t<S> p = chunk_of<S>(s);
    const int W = 16 / (sizeof(S) > sizeof(D) ? sizeof(S) : sizeof(D));
    const S* from = (const S*)t.at[0][p.tensor] + p.begin;
    D* to = (D*)t.at[1][p.tensor] + p.begin;
    const bool aligned = (u64)from % sizeof(vec<S, W>) == 0 && (u64)to % sizeof(vec<D, W>) == 0;
    const int vectors = aligned ? p.count / W : 0;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const vec<S, W> v = ((const vec<S, W>*)from)[i];
        vec<D, W> made;
#pragma unroll
        for (int w = 0; w < W; ++w) made.at[w] = cast<D>(v.at[w]);
        ((vec<D, W>*)to)[i] = made;
    }
    for (int i = vectors * W + threadIdx.x; i < p.count; i += blockDim.x) to[i] = cast<D>(from[i]);
}
"""


def _text(source: str, made: str, capacity: int) -> str:
    body = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) cast_all(
    const __grid_constant__ table<2, {capacity}> t, const __grid_constant__ sizes<{capacity}> s
) {{ cast_chunk<{source}, {made}>(t, s); }}"""
    return assembled(PRELUDE, TEXT, CASTING, body)


def takes(joined: Joined) -> bool:
    """Whether one launch takes all tensors."""
    metas = [meta for _, meta in joined.loads]
    if not {meta.dtype for _, meta in (*joined.loads, *joined.news)} <= {*_TYPES}:
        return False
    return len(metas) <= CAPACITIES[-1] and all([0 < meta.numel <= _LARGEST for meta in metas])


def _prepared(sources: Sequence[Meta], made: DType) -> tuple[Launch, int]:
    """The launch, which takes a table of the addresses of what is read and made; and how many each part of it has."""
    (part,) = parts([sources])
    kernel = load(_text(CTYPES[sources[0].dtype], CTYPES[made], part.capacity), "cast_all")
    table = 2 * part.capacity
    return kernel.prepare(part.blocks, THREADS, "", [part.packed], table=table), part.capacity


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernel, and return what allocates the results and starts it."""
    sources, news = [meta for _, meta in joined.loads], [meta for _, meta in joined.news]
    with backend.as_current():
        fire, capacity = _prepared(sources, news[0].dtype)
    padding = [0] * (capacity - len(sources))
    offsets = [[meta.offset * meta.dtype.itemsize for meta in metas] for metas in (sources, news)]

    def addresses(values: tuple[Value, ...], own: list[int]) -> list[int]:
        return [value.storage.block.pointer + offset for value, offset in zip(values, own)]

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, *addresses(args, offsets[0]), *padding, *addresses(outs, offsets[1]), *padding)

    start, empty = backend.at_once(launch), backend.empty

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        start(args, values)
        return values

    return Executor(backend.on_device(run), repr(joined), 0)


JOINERS[keys.CUDA, CASTS] = Joiner(takes, makes)


def check_loads(dtype: DType) -> None:
    """Each pair of types, and each capacity of the table."""
    for made in _TYPES if dtype in _TYPES else ():
        for capacity in CAPACITIES:
            _prepared([Meta.of((5,), dtype, Device("cuda:0"))] * capacity, made)
