"""Fused element-wise kernels on the host: the single operations' kernels, on blocks that stay in the cache.

Each block passes through all computations before the next one is begun, so that what is between them never reaches
memory. Blocks are shared by threads. Every element is computed by the functions that compute it alone, from operands
that are no shorter than these ask for, so results are equal to the bit; half precision stays float32 in between.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.cpu.memory import scratch
from server.engine.cuda.runtime.geometry import layout_of
from server.engine.device import threads
from server.engine.programs.fused import FUSERS, Compute, Executor, Fuser, Kernel, is_cast, may_refuse
from server.engine.value import Backend
from telegrad_protocol import dtypes
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .tape import Tape, kernel_of

Array = Any
_BLOCK = compiled.LEAST
"""Elements of a block, at least: the functions of one operation choose between loops by this number."""
_MOST_OPERANDS = 24
_IN_ROW_MAJOR_LOOPS = frozenset(("gelu", "_gelu_backward", "silu", "_silu_backward"))
"""Operations that compute row-major tensors by other loops than the rest, with other last bits."""
_HEAVY = ("special_", "igamma", "polygamma", "_polygamma", "lgamma", "digamma", "gcd", "lcm", "i0", "sinc")
"""Operations that take so long that memory does not matter to them begin so; their last bits depend on layouts."""


def takes(compute: Compute, out: Meta) -> bool:
    """Whether the kernel of an operation writes an array, and needs nothing but arrays and numbers."""
    types = [compute.compute, compute.dtype, *[meta.dtype for meta in compute.bound if isinstance(meta, Meta)]]
    if dtypes.complex32 in types or may_refuse(compute):
        return False
    if is_cast(compute):
        return True
    name = compute.op.name
    if name.startswith(_HEAVY) or (name in _IN_ROW_MAJOR_LOOPS and not out.is_contiguous):
        return False
    info = kernel_of(compute)
    keywords = compute.bound[compute.op.positional :]
    is_plain = info is not None and info.wants_out and not info.wants_generator and not info.updates
    return is_plain and not any([isinstance(item, Meta) for item in keywords])


def makes(backend: Backend, kernel: Kernel) -> Executor:
    """Plan blocks and the calls for each; the text lists the computations."""
    metas = [*kernel.loads, *[meta for _, meta in kernel.news]]
    layout = layout_of(kernel.shape, [*metas[len(kernel.loads) :], *kernel.loads])
    shape = layout.shape or (1,)
    columns = [*layout.strides[len(kernel.news) :], *layout.strides[: len(kernel.news)]]
    views = [
        Meta.of(shape, meta.dtype, meta.device, steps or (0,), meta.offset) for meta, steps in zip(metas, columns)
    ]  # fmt: skip
    calls, kinds, constants = Tape(kernel).finished()
    blocks = _blocks(shape)
    nbytes = sum([meta.nbytes for meta in metas])
    pieces = threads.parts_of(len(blocks), max(1, min(len(blocks), nbytes // threads.LEAST_BYTES)))
    names = [f"program {number}" for number in range(len(kinds))]
    empty, array_of, news = backend.empty, backend.array, [meta for _, meta in kernel.news]
    stored = [place for place, _ in kernel.stores]

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        arrays = [array_of(value.storage, view) for value, view in zip(args + values, views)]

        def work(piece: int) -> None:
            for block, size in blocks[pieces[piece]]:
                held = [array[block] for array in arrays]
                held += [_buffer(name, size, kind) for name, kind in zip(names, kinds)]
                held += constants
                for function, operands, target in calls:
                    function(*operands(held), out=held[target])

        threads.run(work, len(pieces))
        for place in stored:
            args[place].storage.version += 1
        return values

    return Executor(run, repr(kernel))


def _buffer(name: str, shape: Size, kind: np.dtype[Any]) -> Array:
    return scratch(name, shape, "H").view(kind) if kind.char in "eE" else scratch(name, shape, kind.char)


def _blocks(shape: Size) -> list[tuple[tuple[Any, ...], Size]]:
    """Indices of blocks, of at least ``_BLOCK`` elements where there are so many, and the blocks' shapes."""
    split, inner = 0, 1
    for dim in range(len(shape) - 1, -1, -1):
        if inner * shape[dim] > _BLOCK or dim == 0:
            split = dim
            break
        inner *= shape[dim]
    length = shape[split]
    parts = threads.parts_of(length, max(1, length // -(-_BLOCK // inner)))
    outer = product(*[range(size) for size in shape[:split]])
    rest = shape[split + 1 :]
    return [((*place, part), (part.stop - part.start, *rest)) for place in outer for part in parts]


FUSERS[keys.CPU] = Fuser(takes, makes, _MOST_OPERANDS)
