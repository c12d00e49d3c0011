"""From lines to launches of the sorting kernels: lengths decide which, and what memory they need meanwhile.

Knows no operation: what is asked for is a window of each sorted line, by its first rank and size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from server.engine.cuda.reduce.layout import ceiling, flag, index_types, kept_strides, needs_wide
from server.engine.cuda.runtime.geometry import INDEXING, Layout, blocks, collapse, packed
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import PRELUDE, assembled
from server.engine.device.cupy_module import cp
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .sort_text import KERNELS, ORDER
from .topk_text import SELECTION
from .topk_text import THREADS as SELECT_THREADS

SHORT = 128
_SHORT_THREADS = 128
_MIDDLE = 8192
_WARPS = 16
"""Of a block that sorts long lines."""
_ITEMS = 16
"""Elements of a thread."""
_TILE = 32 * _WARPS * _ITEMS
LONGEST = 1 << 30
"""Lines are shorter: counts share 32 bits with two flags."""
_MOST_BEST = 1024
_PART = 1 << 13
"""Elements from which on it pays to give a part of a line a block of its own."""

_INFINITY = {
    dtypes.float16: 0x7C00, dtypes.bfloat16: 0x7F80, dtypes.float32: 0x7F800000, dtypes.float64: 0x7FF0000000000000,
}  # fmt: skip

Sort = Callable[[int, int, int], None]
"""Takes the addresses of the input, the values (0 where they are not wanted) and the indices."""


class Job(NamedTuple):
    """Lines of one type to sort, and the window of ranks that is wanted."""

    dtype: DType
    descending: bool
    others: Layout
    steps: Size
    length: int
    start: int
    size: int
    is_wide: bool
    is_median: bool = False
    digits: int = 8
    """How many bytes of the keys tell them apart, the lowest first; no more than they have."""

    @property
    def lines(self) -> int:
        return self.others.numel


def job_of(
    input: Meta,
    values: Meta,
    indices: Meta,
    dim: int,
    descending: bool,
    window: tuple[int, int],
    is_median: bool = False,
) -> Job:
    """The lines of ``input`` along ``dim``; results have the window there, or are without that dimension."""
    at = dim % input.ndim if input.ndim else 0
    kept = [d for d in range(input.ndim) if d != at]
    metas = (input, values, indices)
    strides = [kept_strides(meta, kept) for meta in metas]
    steps = tuple([meta.strides[at] if meta.ndim == input.ndim and meta.ndim else 1 for meta in metas])
    layout = collapse(tuple([input.shape[d] for d in kept]), strides, [meta.offset for meta in metas])
    length = input.shape[at] if input.ndim else 1
    return Job(input.dtype, descending, layout, steps, length, *window, needs_wide(*metas), is_median)


def sorting(backend: Any, job: Job) -> Sort:
    """What sorts, for lines of any length below ``LONGEST``."""
    if job.length <= SHORT:
        items = ceiling(blocks(job.length, 32))
        body = f"warp_sort<O, {items}, {flag(job.is_median)}>(in, values, indices, job)"
        return _simple(backend, job, body, _SHORT_THREADS, blocks(job.lines, _SHORT_THREADS // 32))
    if job.length <= _MIDDLE:
        items = _ITEMS // 2 if job.length <= _MIDDLE // 2 else _ITEMS
        warps = ceiling(blocks(job.length, 32 * items))
        body = f"block_radix_sort<O, {warps}, {items}, {flag(job.is_median)}>(in, values, indices, job)"
        shared = _ranking_bytes(warps) + 32 * warps * items * (job.dtype.itemsize + 2)
        return _simple(backend, job, body, 32 * warps, job.lines, shared)
    return _long(backend, job)


def _ranking_bytes(warps: int) -> int:
    """The size of ``BlockRanks`` in the text."""
    return 4 * (256 * warps + 256 + 8)


def _simple(backend: Any, job: Job, body: str, threads: int, grid: int, shared: int = 0) -> Sort:
    signature = "typename O::U* values, i64* indices, const typename O::U* in, const __grid_constant__ Lines job"
    fire = load(source(job, signature, body, threads), "sort").prepare(grid, threads, "PPP", [bytes_of(job)], shared)

    def sort(input: int, values: int, indices: int) -> None:
        fire(backend.stream, values, indices, input)

    return sort


def select_rank(backend: Any, job: Job) -> Sort:
    """What finds the element of rank ``job.start`` of each line, or the median."""
    return _simple(
        backend, job, f"select_rank<O, {flag(job.is_median)}>(in, values, indices, job)", SELECT_THREADS, job.lines
    )


def _clear(stream: int, begin: int, nbytes: int) -> None:
    """Fill memory with zeros, as a launch that may wait."""
    cp.cuda.runtime.memsetAsync(begin, 0, nbytes, stream)


def _long(backend: Any, job: Job) -> Sort:
    itemsize = job.dtype.itemsize
    passes = min(job.digits, itemsize)
    tiles = blocks(job.length, _TILE)
    total, grid = job.lines * job.length, job.lines * tiles
    histograms = 1024 * itemsize * job.lines
    states = 1024 * grid
    zeroed = 256 + histograms + passes * states
    buffer = -(-total * itemsize // 256) * 256 + -(-total * 4 // 256) * 256
    scratch = Meta.of((zeroed + min(passes - 1, 2) * buffer,), dtypes.uint8, backend.device)
    places = -(-total * itemsize // 256) * 256
    count = _count_kernel(job, grid, tiles)
    steps = [_pass_kernel(job, grid, tiles, number, passes) for number in range(passes)]

    def sort(input: int, values: int, indices: int) -> None:
        stream = backend.stream
        memory = backend.empty(scratch)
        base = memory.storage.block.pointer
        backend.launches.launch(_clear, stream, base, zeroed)
        counts = base + 256
        count(stream, input, counts)
        source_at = 0
        for number, step in enumerate(steps):
            target = base + zeroed + number % 2 * buffer
            state = counts + histograms + number * states
            step(
                stream, source_at or input, source_at + places, target, target + places, values, indices, counts,
                base + 4 * number, state,
            )  # fmt: skip
            source_at = target

    return sort


def _count_kernel(job: Job, grid: int, tiles: int) -> Callable[..., None]:
    signature = "const typename O::U* in, u32* histograms, const __grid_constant__ Lines job, u32 tiles"
    body = f"count_digits<O, {_WARPS}, {_ITEMS}>(in, histograms, job, tiles)"
    threads = 32 * _WARPS
    kernel = load(source(job, signature, body, threads), "sort")
    return kernel.prepare(grid, threads, "PP", [bytes_of(job), ("unsigned", tiles)])


def _pass_kernel(job: Job, grid: int, tiles: int, number: int, passes: int) -> Callable[..., None]:
    signature = (
        "const typename O::U* in, const u32* in_places, typename O::U* out, u32* out_places, typename O::U* values, "
        "i64* indices, const u32* histograms, u32* ticket, u32* states, const __grid_constant__ Lines job, u32 tiles, "
        "int pass"
    )
    kind = f"{_WARPS}, {_ITEMS}, {flag(number == 0)}, {flag(number == passes - 1)}"
    names = "in, in_places, out, out_places, values, indices, histograms, ticket, states, job, tiles, pass"
    body = f"radix_pass<O, {kind}>({names})"
    threads = 32 * _WARPS
    kernel = load(source(job, signature, body, threads), "sort")
    shared = _ranking_bytes(_WARPS) + _TILE * (job.dtype.itemsize + 4)
    constants: list[Any] = [bytes_of(job), ("unsigned", tiles), ("int", number)]
    return kernel.prepare(grid, threads, "PPPPPPPPP", constants, shared)


def finds_best(job: Job) -> bool:
    """Whether the window is best computed by selection: it begins each line and is small."""
    return job.start == 0 and job.size <= _MOST_BEST and job.length > _MOST_BEST


def best(backend: Any, job: Job, processors: int) -> Sort:
    """What finds the first elements of the sorted lines; long lines in parts first, then the parts' best."""
    levels = []
    length = job.length
    while True:
        parts = _parts(job, length, processors)
        levels.append((length, parts))
        if parts == 1:
            break
        length = parts * job.size
    if len(levels) == 1:
        return _only_level(backend, job)
    kernels = [
        _level(job._replace(length=length), parts, number == 0, parts == 1)
        for number, (length, parts) in enumerate(levels)
    ]
    most = job.lines * levels[0][1] * job.size
    places = -(-most * job.dtype.itemsize // 256) * 256
    buffer = places + -(-most * 4 // 256) * 256
    scratch = Meta.of((2 * buffer,), dtypes.uint8, backend.device)

    def find(input: int, values: int, indices: int) -> None:
        memory = backend.empty(scratch)
        base, source_at = memory.storage.block.pointer, 0
        for number, kernel in enumerate(kernels):
            target = base + number % 2 * buffer
            kernel(backend.stream, source_at or input, source_at + places, target, target + places, values, indices)
            source_at = target

    return find


def _parts(job: Job, length: int, processors: int) -> int:
    wanted = 4 * processors // job.lines
    return max(1, min(wanted, length // max(_PART, 8 * job.size)))


def _only_level(backend: Any, job: Job) -> Sort:
    fire = _level(job, 1, True, True)

    def find(input: int, values: int, indices: int) -> None:
        fire(backend.stream, input, 0, 0, 0, values, indices)

    return find


def _level(job: Job, parts: int, is_first: bool, is_last: bool) -> Callable[..., None]:
    signature = (
        "const typename O::U* in, const u32* in_places, typename O::U* out, u32* out_places, typename O::U* values, "
        "i64* indices, const __grid_constant__ Lines job, u32 parts"
    )
    capacity = max(256, ceiling(2 * job.size))
    body = (
        f"best<O, {capacity}, {flag(is_first)}, {flag(is_last)}>"
        "(in, in_places, out, out_places, values, indices, job, parts)"
    )
    kernel = load(source(job, signature, body, SELECT_THREADS), "sort")
    return kernel.prepare(job.lines * parts, SELECT_THREADS, "PPPPPP", [bytes_of(job), ("unsigned", parts)])


def order_type(dtype: DType, descending: bool) -> str:
    """The C++ type by which elements are ordered."""
    bits = 8 * dtype.itemsize
    sign = 1 << (bits - 1) if dtype.is_signed else 0
    return f"Order<u{bits}, {_INFINITY.get(dtype, 0)}ull, {sign}ull, {flag(descending)}>"


def source(job: Job, signature: str, body: str, threads: int) -> str:
    """The text of a kernel named ``sort``."""
    return assembled(
        PRELUDE, INDEXING, index_types(job.is_wide, lines_t=job.others), ORDER, KERNELS, SELECTION,
        f"typedef {order_type(job.dtype, job.descending)} O;",
        f'extern "C" __global__ void __launch_bounds__({threads}, {_at_once(job, threads)})',
        f"sort({signature}) {{ {body}; }}\n",
    )  # fmt: skip


def _at_once(job: Job, threads: int) -> int:
    """Blocks that should have the registers to run together on a multiprocessor."""
    return max(1, (1024 if job.dtype.itemsize <= 4 else 512) // threads)


def bytes_of(job: Job) -> bytes:
    """The structure ``Lines`` of the text."""
    index = "q" if job.is_wide else "I"
    digits = min(job.digits, job.dtype.itemsize)
    numbers = struct.pack(f"={4 * index}4I", *job.steps, job.lines, job.length, job.start, job.size, digits)
    text = packed(job.others, wide=job.is_wide) + numbers
    return text + bytes(-len(text) % 8)
