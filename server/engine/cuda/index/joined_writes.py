"""Copies of slices to the same places of several tensors: one kernel, of which each layer of blocks writes one tensor.

What is known to be in range alone is written so: indices that a device has to check are for the single operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from server.engine import context, keys
from server.engine import functional as F
from server.engine.cuda.rows.rowwise import byte_offset, fits_grid
from server.engine.cuda.runtime import geometry
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.overlapping import OVERLAPPING
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import WRITES, Joined
from server.engine.value import Backend
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta

from .index_text import THREADS
from .indexing import MOVED, Iteration, across, vector

_TEXT = r"""
template <class T, int W, class L, class I> __device__ __forceinline__ void write_slices(
    T* out, const T* source, const I* index, const L& layout, i64 count, i64 size, i64 step
) {
    typedef vec<T, W> unit;
    let_next_begin();
    wait_for_earlier();
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
        typename L::index at[3];
        layout.find(i, at);
        const i64 k = (i64)index[at[2]];
        if ((u64)k < (u64)size) *(unit*)(out + at[1] + k * step) = *(const unit*)(source + at[0]);
    }
}
"""


class _Plan(NamedTuple):
    """How all slices are gone through, and where operands begin in their memory, in bytes: as roles come."""

    iteration: Iteration
    offsets: list[int]


def _plan(joined: Joined) -> _Plan | None:
    """None where the slices do not lie alike."""
    roles, (dim,) = joined.roles, joined.attributes
    made = []
    for number in range(len(joined.loads) // 2):
        target, source = roles[f"target {number}"], roles[f"source {number}"]
        if target.dtype is not source.dtype or target.dtype is not roles["target 0"].dtype:
            return None
        placement = across(target, dim, roles["index"])
        made.append(Iteration(placement, vector(source)[1], source.offset, target.offset, target.dtype.itemsize))
    first = made[0]
    if any([(one.type, one.width, one.constants) != (first.type, first.width, first.constants) for one in made]):
        return None
    return _Plan(first, [byte_offset(meta) for _, meta in joined.loads])


def takes(joined: Joined) -> bool:
    """Whether there is a kernel: elements of one type, in slices that lie alike."""
    plan = _plan(joined)
    return plan is not None and bool(plan.iteration.count) and fits_grid(plan.iteration.count)


def _text(joined: Joined, iteration: Iteration) -> str:
    roles, count = joined.roles, len(joined.loads) // 2
    element, index = MOVED[roles["target 0"].dtype.itemsize], CTYPES[roles["index"].dtype]
    pairs = "".join([f"{element}* out{n}, const {element}* in{n}, " for n in range(count)])
    chosen = [f"blockIdx.y == {n} ? {{}}{n} : " for n in range(count - 1)]
    out, source = ["".join([one.format(name) for one in chosen]) + f"{name}{count - 1}" for name in ("out", "in")]
    entry = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) run(
    const {index}* index, {pairs}{iteration.type} layout, i64 count, i64 size, i64 step
) {{ write_slices<{element}, {iteration.width}>({out}, {source}, index, layout, count, size, step); }}"""
    return assembled(PRELUDE, OVERLAPPING, geometry.INDEXING, _TEXT, entry)


def _prepared(joined: Joined) -> tuple[str, list[int], Callable[..., None]]:
    """The text, where operands begin in their memory, and the launch on addresses."""
    plan = _plan(joined)
    assert plan is not None, "only what is taken is made"
    text, blocks = _text(joined, plan.iteration), geometry.blocks(plan.iteration.count, THREADS)
    fire = load(text, "run").prepare(
        (blocks, len(joined.loads) // 2), THREADS, "P" * len(plan.offsets), plan.iteration.constants, overlaps=True
    )  # fmt: skip
    return text, plan.offsets, fire


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernel, and return what starts it, or executes the single operations where indices must be checked."""
    with backend.as_current():
        text, offsets, fire = _prepared(joined)
    (dim,) = joined.attributes

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, *[value.storage.block.pointer + offset for value, offset in zip(args, offsets)])

    start = backend.deferring(launch)

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not context.current.checks.covered:
            for target, source in zip(args[1::2], args[2::2]):
                F.index_copy_(target, dim, args[0], source)
            return ()
        start(args, ())
        for target in args[1::2]:
            target.storage.version += 1
        return ()

    return Executor(backend.on_device(run), f"{joined!r}\n{text}", 0)


JOINERS[keys.CUDA, WRITES] = Joiner(takes, makes)


def usual_loads() -> None:
    """Load what caches of keys and values need: heads of usual widths, of one sample or of several."""
    for dtype in (dtypes.float32, dtypes.bfloat16):
        check_loads(dtype)


def check_loads(dtype: DType) -> None:
    """Load the kernels of a type for one sample and several, with new slices that lie head by head or side by side."""
    device, positions = Device("cuda:0"), dtypes.int64
    for samples, strides in ((1, None), (2, None), (2, (768, 64, 768, 1))):
        cache, new = [Meta.of((samples, 4, n, 64), dtype, device) for n in (256, 1)]
        given = new if strides is None else Meta.of(new.shape, dtype, device, strides)
        loads = [("index", Meta.of((1,), positions, device))]
        loads += [item for n in range(2) for item in ((f"target {n}", cache), (f"source {n}", given))]
        _prepared(Joined(WRITES, "index_copy_", (2,), tuple(loads), ()))
