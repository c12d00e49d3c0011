"""Fused element-wise kernels on the host: the single operations' kernels, on blocks that stay in the cache.

Each block passes through all computations before the next one is begun, so that what is between them never reaches
memory. Blocks are shared by threads. Every element is computed by the functions that compute it alone, from operands
that are no shorter than these ask for, so results are equal to the bit; half precision stays float32 in between.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.cpu.memory import scratch
from server.engine.cuda.runtime.geometry import layout_of
from server.engine.device import threads
from server.engine.programs.fused import FUSERS, Compute, Executor, Fuser, Kernel, is_cast, may_refuse
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .decomposition import decomposed
from .machine_code import code_bytes
from .tape import Tape, kernel_of

Array = Any
Index = tuple[Any, ...]
Computes = Callable[[Index, Size], None]
"""Computes a block, given its index and its shape."""
_BLOCK = compiled.LEAST
"""Elements of a block, at least: the functions of one operation choose between loops by this number."""
_LONG = 1 << 17
"""The same where one compiled loop does all, so that nothing has to stay in the cache."""
_MOST_OPERANDS = 24
_IN_ROW_MAJOR_LOOPS = frozenset(("gelu", "_gelu_backward", "silu", "_silu_backward", "exp", "sigmoid", "tanh"))
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
    if name == "addcmul" and compute.args[3] != 1 and len({meta.shape for meta in compute.bound[:3]}) > 1:
        return False  # the factor multiplies another product where shapes differ
    info = kernel_of(compute)
    keywords = compute.bound[compute.op.positional :]
    is_plain = info is not None and info.wants_out and not info.wants_generator and not info.updates
    return is_plain and not any([isinstance(item, Meta) for item in keywords])


def makes(backend: Backend, kernel: Kernel) -> Executor:
    """Plan blocks and the calls for each; the text lists the computations, and has those of compiled loops."""
    metas = [*kernel.loads, *[meta for _, meta in kernel.news]]
    layout = layout_of(kernel.shape, [*metas[len(kernel.loads) :], *kernel.loads])
    shape = layout.shape or (1,)
    columns = [*layout.strides[len(kernel.news) :], *layout.strides[: len(kernel.news)]]
    views = [
        Meta.of(shape, meta.dtype, meta.device, steps or (0,), meta.offset) for meta, steps in zip(metas, columns)
    ]  # fmt: skip
    tape = Tape(decomposed(kernel), *_block_layout(views, shape))
    blocks = _Blocks(shape, _LONG if tape.only_loop else _BLOCK)
    first = next(blocks.within(0, blocks.count))
    whole = struct.pack(f"{len(first[1])}q", *first[1]) if blocks.count == 1 else None
    begin = _on_memory(tape, views, whole) if tape.only_loop else _on_arrays(tape, backend, views)
    nbytes = sum([meta.nbytes for meta in metas])
    pieces = max(1, min(blocks.count, nbytes // threads.LEAST_BYTES))
    empty, news = backend.empty, [meta for _, meta in kernel.news]
    stored = [place for place, _ in kernel.stores]

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        compute = begin(args + values)
        if blocks.count == 1:
            compute(*first)
        else:
            threads.run(lambda piece: _compute_all(compute, blocks.within(piece, pieces)), pieces)
        for place in stored:
            args[place].storage.version += 1
        return values

    return Executor(run, "\n".join([repr(kernel), *tape.texts]), sum(map(code_bytes, tape.texts)))


def _compute_all(compute: Computes, blocks: Iterator[tuple[Index, Size]]) -> None:
    for index, size in blocks:
        compute(index, size)


def _on_arrays(tape: Tape, backend: Backend, views: Sequence[Meta]) -> Callable[[tuple[Value, ...]], Computes]:
    """What computes blocks by calls of functions of arrays."""
    calls, kinds, constants = tape.finished()
    names = [f"program {number}" for number in range(len(kinds))]
    array_of = backend.array

    def begin(values: tuple[Value, ...]) -> Computes:
        arrays = [array_of(value.storage, view) for value, view in zip(values, views)]

        def compute(index: Index, size: Size) -> None:
            held = [array[index] for array in arrays]
            held += [_buffer(name, size, kind) for name, kind in zip(names, kinds)]
            held += constants
            for function, operands, target in calls:
                if target < 0:
                    function(*operands(held))
                else:
                    function(*operands(held), out=held[target])

        return compute

    return begin


def _on_memory(
    tape: Tape, views: Sequence[Meta], whole: bytes | None
) -> Callable[[tuple[Value, ...]], Computes]:  # fmt: skip
    """What computes blocks by one compiled loop, which needs no arrays but where they begin.

    ``whole`` is the packed shape where there is one block only.
    """
    assert tape.only_loop is not None
    loop, arrays = tape.only_loop
    steps = [[step * views[place].dtype.itemsize for step in views[place].strides] for place in arrays]
    begins = [(place, views[place].offset * views[place].dtype.itemsize) for place in arrays]

    def begin(values: tuple[Value, ...]) -> Computes:
        addresses = [values[place].storage.block.pointer + offset for place, offset in begins]
        if whole is not None:
            return lambda index, size: loop(addresses, whole)

        def compute(index: Index, size: Size) -> None:
            *outer, part = index
            at = (*outer, part.start)
            starts = [a + sum([i * step for i, step in zip(at, own)]) for a, own in zip(addresses, steps)]
            loop(starts, struct.pack(f"{len(size)}q", *size))

        return compute

    return begin


def _buffer(name: str, shape: Size, kind: np.dtype[Any]) -> Array:
    return scratch(name, shape, "H").view(kind) if kind.char in "eE" else scratch(name, shape, kind.char)


def _split(shape: Size, least: int) -> tuple[int, int]:
    """The dimension that blocks are pieces of, and how many elements lie within one index of it."""
    inner = 1
    for dim in range(len(shape) - 1, 0, -1):
        if inner * shape[dim] > least:
            return dim, inner
        inner *= shape[dim]
    return 0, inner


def _block_layout(views: Sequence[Meta], shape: Size) -> tuple[list[Size], Size]:
    """The strides of each array's blocks in bytes, and a block's dimensions after the first."""
    split, _ = _split(shape, _BLOCK)
    return [tuple([s * view.dtype.itemsize for s in view.strides[split:]]) for view in views], shape[split + 1 :]


class _Blocks:
    """The blocks of a shape, of at least ``least`` elements where there are as many; each is worked out when it is met.

    They are stretches of one dimension, at every place in the dimensions before it.
    """

    def __init__(self, shape: Size, least: int) -> None:
        split, inner = _split(shape, _BLOCK)
        self._outer, self._length, self._rest = shape[:split], shape[split], shape[split + 1 :]
        self._parts = max(1, self._length // -(-least // inner))
        self.count = math.prod(self._outer) * self._parts

    def within(self, piece: int, pieces: int) -> Iterator[tuple[Index, Size]]:
        """Index and shape of the blocks that a piece of the work consists of."""
        for number in range(self.count * piece // pieces, self.count * (piece + 1) // pieces):
            place, part = divmod(number, self._parts)
            start, stop = self._length * part // self._parts, self._length * (part + 1) // self._parts
            index: Index = (slice(start, stop),)
            for size in reversed(self._outer):
                place, at = divmod(place, size)
                index = (at, *index)
            yield index, (stop - start, *self._rest)


FUSERS[keys.CPU] = Fuser(takes, makes, _MOST_OPERANDS)
