"""Element-wise steps with the sum of a result over all rows: the gradient of an activation, and that of a bias.

Every block takes some columns of some rows, and leaves the sums of its columns; ``totals`` adds these up in a fixed
order. What is summed is what is stored, so that a sum of its own would come to the same but for the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from server.engine import keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cuda.pointwise.fused import described, stores_of
from server.engine.cuda.pointwise.fused_text import FusedText, applied, functions_of, signature
from server.engine.cuda.runtime.kept_modules import MODULE_BYTES, load_kept
from server.engine.cuda.runtime.prelude import PRELUDE
from server.engine.programs.fused import JOINERS, Executor, Joiner, Kernel, Register, compute_of
from server.engine.programs.joined import SUMS, Joined
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import TABLE

from .rowwise import byte_offset, vector_width
from .totals import totals

_LANES: Final = 32
_ROWS: Final = 8
"""Threads of a block side by side in a row, and rows that it has at once."""
_BLOCKS: Final = 792
"""The most blocks: six per multiprocessor of a device with 132, which all run at once for usual activations."""
_LEAST: Final = 1 << 20
"""Elements from which on reading them once more takes longer than to start the second kernel."""
_LARGEST: Final = 1 << 31
_TYPES: Final = (dtypes.float32, *HALVES)


def takes(joined: Joined) -> bool:
    """Whether there is a kernel: row-major operands of one shape, beside single numbers, and enough to be read."""
    kernel, summed = joined.attributes
    shape, metas = kernel.shape, [meta for _, meta in kernel.news]
    if kernel.stores or not kernel.loads or metas[summed].dtype not in _TYPES or len(shape) < 2:
        return False
    metas += [meta for meta in kernel.loads if not _is_single(meta)]
    is_dense = all([meta.shape == shape and meta.is_contiguous for meta in metas])
    return is_dense and _LEAST <= math.prod(shape) < _LARGEST


def _is_single(meta: Meta) -> bool:
    return meta.numel == 1


def _text(kernel: FusedText, summed: int) -> str:
    """The whole source; ``summed`` is the number of the store whose columns are added up."""
    width, stores = kernel.width, kernel.stores
    singles, reads, elements = [], [], []
    for k, (held, is_single) in enumerate(kernel.loads):
        vector = f"vec<{held}, {width}>"
        if is_single:
            singles.append(f"    const {held} v{k} = *p{k};\n")
        else:
            reads.append(f"        const {vector} v{k} = ((const {vector}*)p{k})[i];\n")
        elements.append(f"v{k}" if is_single else f"v{k}.at[j]")
    made = [f"        vec<{kind}, {width}> made{k};\n" for k, (kind, _) in enumerate(stores)]
    writes = [f"        ((vec<{kind}, {width}>*)out{k})[i] = made{k};\n" for k, (kind, _) in enumerate(stores)]
    return f"""{PRELUDE}{functions_of(kernel)}
{signature(kernel, "u32 rows, u32 vectors", "float* partial")} {{
    __shared__ float shared[{_ROWS}][{_LANES * width}];
    const u32 lane = threadIdx.x % {_LANES}, first = threadIdx.x / {_LANES}, column = blockIdx.x * {_LANES} + lane;
    float sums[{width}];
#pragma unroll
    for (int j = 0; j < {width}; ++j) sums[j] = 0;
{"".join(singles)}    if (column < vectors)
#pragma unroll 2
    for (u32 row = blockIdx.y * {_ROWS} + first; row < rows; row += gridDim.y * {_ROWS}) {{
        const i64 i = (i64)row * vectors + column;
{"".join(reads)}{"".join(made)}#pragma unroll
        for (int j = 0; j < {width}; ++j) {{
            {applied(kernel, elements, [f"made{k}.at[j]" for k in range(len(stores))])}
            sums[j] += widen(made{summed}.at[j]);
        }}
{"".join(writes)}    }}
#pragma unroll
    for (int j = 0; j < {width}; ++j) shared[first][lane * {width} + j] = sums[j];
    __syncthreads();
    for (u32 k = threadIdx.x; k < {_LANES * width}; k += {_LANES * _ROWS}) {{
        float sum = 0;
#pragma unroll
        for (int row = 0; row < {_ROWS}; ++row) sum += shared[row][k];
        const u32 at = blockIdx.x * {_LANES * width} + k;
        if (at < vectors * {width}) partial[(i64)blockIdx.y * vectors * {width} + at] = sum;
    }}
}}
"""


class _Launches(NamedTuple):
    """What computes elements and parts of the sums, what adds these up, and the meta of the parts."""

    elements: Callable[..., None]
    totals: Callable[..., None]
    partial: Meta


def _prepared(joined: Joined) -> tuple[_Launches, str]:
    """The launches, which take addresses of parts, results and operands, and of the sum and parts; and the text."""
    kernel, summed = joined.attributes
    length, metas = kernel.shape[-1], [*[meta for _, meta in stores_of(kernel)], *kernel.loads]
    width = vector_width(length, [meta for meta in metas if not _is_single(meta)])
    text, constants = described(kernel, [_is_single(meta) for meta in kernel.loads], "", width)
    source = _text(text, summed)
    rows, vectors = math.prod(kernel.shape) // length, length // width
    across = -(-vectors // _LANES)
    slices = max(1, min(-(-rows // _ROWS), _BLOCKS // across))
    numbers = [*constants, ("unsigned", rows), ("unsigned", vectors)]
    pointers, sums = "P" * (1 + len(metas)), joined.roles["sums"]
    fire = load_kept(source, "fused").prepare((across, slices), _LANES * _ROWS, pointers, numbers)
    partial = Meta.of((slices * length,), dtypes.float32, sums.device)
    return _Launches(fire, totals([sums], "float", slices, length), partial), source


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernels, and return what allocates the results and starts them."""
    with backend.as_current():
        launches, source = _prepared(joined)
    news, empty = [meta for _, meta in joined.news], backend.empty
    kernel, _ = joined.attributes
    stored = [place for place, _ in kernel.stores]
    offsets = [byte_offset(meta) for meta in (*[meta for _, meta in stores_of(kernel)], *kernel.loads)]

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        held = empty(launches.partial)
        partial, values = held.storage.block.pointer, (*outs[:-1], *[args[place] for place in stored], *args)
        addresses = [value.storage.block.pointer + offset for value, offset in zip(values, offsets)]
        launches.elements(backend.stream, partial, *addresses)
        launches.totals(backend.stream, outs[-1].storage.block.pointer, 0, 0, partial)

    start = backend.deferring(launch)

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        start(args, values)
        for place in stored:
            args[place].storage.version += 1
        return values

    return Executor(backend.on_device(run), f"{joined!r}\n{source}", MODULE_BYTES)


JOINERS[keys.CUDA, SUMS] = Joiner(takes, makes)


_USUAL: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("_gelu_backward", ("none",)), ("_gelu_backward", ("tanh",)), ("_relu_backward", ()), ("_silu_backward", ()),
)  # fmt: skip


def usual_loads() -> None:
    """Load what trains layers with a bias and an activation after it."""
    for dtype in _TYPES:
        for name, rest in _USUAL:
            _prepared(_example(name, rest, dtype, 64))


def check_loads(dtype: DType) -> None:
    """Vectors of each width; ``usual_loads`` has the operations that matter."""
    for length in (1, 2, 4, 64) if dtype in _TYPES else ():
        _prepared(_example(*_USUAL[1], dtype, length))


def _example(name: str, rest: tuple[Any, ...], dtype: DType, length: int) -> Joined:
    meta = Meta.of((1 << 16, length), dtype, Device("cuda:0"))
    args, bound = (Register(0), Register(1), *rest), (meta, meta, *rest)
    compute = compute_of(TABLE[name], args, bound, meta)
    assert compute is not None
    kernel = Kernel(meta.shape, (meta, meta), (compute,), ((Register(2), meta),), ())
    sums = meta.like((length,))
    return Joined(SUMS, "sum", (kernel, 0), (("0", meta), ("1", meta)), (("0", meta), ("sums", sums)))
