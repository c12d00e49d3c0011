"""Multi-tensor apply: one launch over the elements of many tensors, whose addresses are kernel parameters.

``Lists`` plans which tensors go into which launch, and how they are cut into chunks, one chunk per block. Tensors of
parallel lists must have the same memory order; those that have not are processed as row-major copies. Knows nothing of
what is computed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from server.engine.cuda.rows.rowwise import byte_offset
from server.engine.cuda.runtime.launch import load, pointer
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.device.cupy_module import cp
from server.engine.in_c.values import beginnings_of
from server.engine.value import Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import is_dense
from telegrad_protocol.meta import Meta

THREADS = 256
CHUNK_BYTES = 16 << 10
"""The bytes of a chunk: few enough for many blocks, and enough to hide the search for the block's tensor."""
CAPACITIES = (8, 32, 128, 512)
"""Tensors of one launch: the kernel parameters of five lists of 512 take 26 of the 32 KiB that CUDA allows."""

TEXT = r"""
// The addresses of N tensors in L parallel lists; the tensors' sizes, and the number of each one's first chunk in this
// launch; the number of tensors, and the numbers of tensors and blocks of earlier launches
template <int L, int N> struct table { void* at[L][N]; };
template <int N> struct sizes { i64 size[N]; u32 first[N]; int count, tensors_before; i64 blocks_before; };

template <class T> struct chunk_t { int tensor; i64 begin; int count; };

template <class T> constexpr int chunk() { return CHUNK_BYTES / sizeof(T); }

template <class T, int N> __device__ __forceinline__ chunk_t<T> chunk_of(const sizes<N>& s) {
    int low = 0, high = s.count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s.first[middle] <= blockIdx.x) low = middle; else high = middle;
    }
    i64 begin = (i64)(blockIdx.x - s.first[low]) * chunk<T>();
    i64 remaining = s.size[low] - begin;
    return {low, begin, remaining < chunk<T>() ? (int)remaining : chunk<T>()};
}

// Call f(x) with one element of every list in READ, in the type of the computation; store the elements in WRITTEN
template <u32 READ, u32 WRITTEN, class T, int L, int N, class F>
__device__ __forceinline__ void for_each(const table<L, N>& t, const chunk_t<T>& p, F f) {
    typedef compute_t<T> C;
    const int W = 16 / sizeof(T);
    T* at[L];
    bool aligned = true;
#pragma unroll
    for (int l = 0; l < L; ++l) {
        at[l] = (T*)t.at[l][p.tensor] + p.begin;
        aligned &= (u64)at[l] % 16 == 0;
    }
    int vectors = aligned ? p.count / W : 0;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        vec<T, W> v[L];
#pragma unroll
        for (int l = 0; l < L; ++l)
            if (READ >> l & 1) v[l] = ((vec<T, W>*)at[l])[i];
#pragma unroll
        for (int w = 0; w < W; ++w) {
            C x[L];
#pragma unroll
            for (int l = 0; l < L; ++l)
                if (READ >> l & 1) x[l] = widen(v[l].at[w]);
            f(x);
#pragma unroll
            for (int l = 0; l < L; ++l)
                if (WRITTEN >> l & 1) v[l].at[w] = cast<T>(x[l]);
        }
#pragma unroll
        for (int l = 0; l < L; ++l)
            if (WRITTEN >> l & 1) ((vec<T, W>*)at[l])[i] = v[l];
    }
    for (int i = vectors * W + threadIdx.x; i < p.count; i += blockDim.x) {
        C x[L];
#pragma unroll
        for (int l = 0; l < L; ++l)
            if (READ >> l & 1) x[l] = widen(at[l][i]);
        f(x);
#pragma unroll
        for (int l = 0; l < L; ++l)
            if (WRITTEN >> l & 1) at[l][i] = cast<T>(x[l]);
    }
}
""".replace("CHUNK_BYTES", str(CHUNK_BYTES))


class Part(NamedTuple):
    """The tensors of one launch, by their indices in the lists."""

    dtype: DType
    indices: tuple[int, ...]
    capacity: int
    blocks: int
    packed: bytes


class Kernel(NamedTuple):
    """A kernel over tables: its text for a C type and a capacity, and the formats of its varying parameters.

    ``body(ctype, capacity)`` is a function named ``name``, with a table, the varying parameters, and the sizes last.
    """

    name: str
    body: Callable[[str, int], str]
    varying: str = ""


def parts(lists: Sequence[Sequence[Meta]]) -> list[Part]:
    """The launches over parallel lists: one per dtype and ``CAPACITIES[-1]`` tensors, without empty tensors."""
    by_type: dict[DType, list[int]] = {}
    for index, meta in enumerate(lists[0]):
        if meta.numel:
            by_type.setdefault(meta.dtype, []).append(index)
    launches: list[Part] = []
    for dtype, indices in by_type.items():
        for start in range(0, len(indices), CAPACITIES[-1]):
            launches.append(_part(dtype, lists[0], tuple(indices[start : start + CAPACITIES[-1]]), launches))
    return launches


def capacity_of(count: int) -> int:
    """The capacity of a table for so many tensors."""
    return next(capacity for capacity in CAPACITIES if capacity >= count)


def _part(dtype: DType, metas: Sequence[Meta], indices: tuple[int, ...], before: list[Part]) -> Part:
    capacity = capacity_of(len(indices))
    sizes, first, blocks = [], [], 0
    for index in indices:
        sizes.append(metas[index].numel)
        first.append(blocks)
        blocks += -(-metas[index].numel * dtype.itemsize // CHUNK_BYTES)
    empty = capacity - len(indices)
    counts = len(indices), sum([len(part.indices) for part in before]), sum([part.blocks for part in before])
    packed = struct.pack(f"={capacity}q{capacity}Iiiq", *sizes, *[0] * empty, *first, *[0] * empty, *counts)
    return Part(dtype, indices, capacity, blocks, packed)


class Lists:
    """Parallel lists of tensors: ``at`` numbers the arguments that they are, ``written`` the lists that change."""

    def __init__(self, metas: Sequence[Sequence[Meta]], at: Sequence[int], written: Sequence[int]) -> None:
        self.parts = parts(metas)
        self._at = tuple(at)
        self._written = frozenset(written)
        self._offsets = [[byte_offset(meta) for meta in metas_of_list] for metas_of_list in metas]
        self._has_offsets = any(any(offsets) for offsets in self._offsets)
        self._copied_indices = [i for i, row in enumerate(zip(*metas, strict=True)) if not _have_one_order(row)]

    def prepare(self, kernel: Kernel, extra: int = 0) -> Callable[..., None]:
        """A launch over all elements: call it with the stream, the arguments, and the varying parameters.

        ``extra``: so many more lists of 64 bits per tensor are given by that name, and follow in the table.
        """
        fires = [self._fire(kernel, part, extra) for part in self.parts]
        at = self._at
        if self.is_plain:
            return self._plain(fires[0])

        def launch(
            stream: int, args: Sequence[Any], *varying: Any, extra: Sequence[Sequence[int]] = ()
        ) -> None:  # fmt: skip
            lists: Any = [args[position] for position in at]
            copies = self._copied(lists) if self._copied_indices else None
            addresses = self._addresses(lists)
            for index, arrays in copies.items() if copies else ():
                for list_addresses, array in zip(addresses, arrays, strict=True):
                    list_addresses[index] = array.data.ptr
            addresses += extra
            for part, fire in zip(self.parts, fires, strict=True):
                fire(stream, *_table(addresses, part), *varying)
            if copies:
                self._put_back(lists, copies)

        return launch

    @property
    def is_plain(self) -> bool:
        """Whether one launch takes all tensors, each from the beginning of its storage."""
        is_one = len(self.parts) == 1 and len(self.parts[0].indices) == len(self._offsets[0])
        return is_one and not self._has_offsets and not self._copied_indices

    def _plain(self, fire: Callable[..., None]) -> Callable[..., None]:
        """The launch of ``prepare`` if the lists are plain, which only collects addresses."""
        at, part = self._at, self.parts[0]
        padding = [0] * (part.capacity - len(part.indices))

        def launch(stream: int, args: Sequence[Any], *varying: Any, extra: Sequence[Sequence[int]] = ()) -> None:
            addresses: list[int] = []
            for position in at:
                addresses += beginnings_of(args[position])
                addresses += padding
            for numbers in extra:
                addresses += numbers
                addresses += padding
            fire(stream, *addresses, *varying)

        return launch

    @property
    def blocks(self) -> int:
        """The number of blocks of all launches."""
        return sum([part.blocks for part in self.parts])

    def _fire(self, kernel: Kernel, part: Part, extra: int) -> Callable[..., None]:
        text = kernel.body(CTYPES[part.dtype], part.capacity)
        return load(assembled(PRELUDE, TEXT, text), kernel.name).prepare(
            part.blocks, THREADS, kernel.varying, [part.packed], table=part.capacity * (len(self._at) + extra)
        )

    def _addresses(self, lists: Sequence[Sequence[Value]]) -> list[Any]:
        if self._has_offsets:
            pairs = zip(lists, self._offsets, strict=True)
            return [[v.storage.block.pointer + o for v, o in zip(*pair, strict=True)] for pair in pairs]
        return list(map(beginnings_of, lists))

    def _copied(self, lists: Sequence[Sequence[Value]]) -> dict[int, list[Any]]:
        return {index: [cp.array(values[index].array, order="C") for values in lists] for index in self._copied_indices}

    def _put_back(self, lists: Sequence[Sequence[Value]], copies: dict[int, list[Any]]) -> None:
        for index, arrays in copies.items():
            for i, array in enumerate(arrays):
                if i in self._written:
                    lists[i][index].array[...] = array


def _table(addresses: Sequence[Sequence[int]], part: Part) -> list[int]:
    """The addresses of a part's tensors, list after list, each filled up to the capacity."""
    indices, padding = part.indices, [0] * (part.capacity - len(part.indices))
    if len(indices) == len(addresses[0]):
        return [address for row in addresses for address in (*row, *padding)]
    return [address for row in addresses for address in (*[row[i] for i in indices], *padding)]


def _have_one_order(metas: Sequence[Meta]) -> bool:
    """Whether tensors of one shape are dense and have the same memory order."""
    first = metas[0]
    if first.numel <= 1:
        return True
    if not is_dense(first.shape, first.strides):
        return False
    wanted = _significant(first)
    return all(_significant(meta) == wanted for meta in metas[1:])


def _significant(meta: Meta) -> list[int]:
    """Strides of dimensions that have more than one element."""
    return [stride for size, stride in zip(meta.shape, meta.strides, strict=True) if size > 1]


def address(value: Any) -> int:
    """The address of a tensor of one element; 0 for an absent tensor."""
    return 0 if value is None else pointer(value)
