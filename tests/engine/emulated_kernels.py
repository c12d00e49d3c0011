"""Stand-ins for CUDA kernels that are given host memory: they read a launch's parameters as the compiled kernel would.

A text's last line declares the parameters and makes one call; what the called function does is written here in NumPy,
over the addresses that the launch was given for the names in the call.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from server.engine.cuda.optim.multi_tensor import CHUNK_BYTES

_KINDS = {"float": np.float32, "double": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_LAST = re.compile(r"void __launch_bounds__\(\d+\) \w+\((.*?)\)\s*\{\s*(\w+)<(.*?)>\((.*)\);\s*\}\s*$", re.DOTALL)
_ZERO = re.compile(r"\((?:const )?\w+\*\)0")


def _array(address: int, kind: str, *shape: int) -> np.ndarray:
    dtype = np.dtype(_KINDS[kind])
    held = (ctypes.c_uint8 * (int(np.prod(shape)) * dtype.itemsize)).from_address(address)
    return np.frombuffer(held, dtype).reshape(shape)


class EmulatedKernel:
    """A kernel of a text that makes one call."""

    def __init__(self, text: str) -> None:
        found = _LAST.search(text)
        assert found is not None, text[-400:]
        declared, self._name, kinds, passed = found.groups()
        self._declared = [item.strip().rpartition(" ")[::2] for item in declared.split(",")]
        self._kinds = [item.strip() for item in kinds.split(",")]
        self._passed = [item.strip() for item in passed.split(",")]

    def prepare(
        self, grid: Any, block: Any, varying: str, constants: Sequence[Any] = (), shared: int = 0, table: int = 0
    ) -> Callable[..., None]:  # fmt: skip
        """What is called with the stream and addresses."""
        run = _FUNCTIONS[self._name]
        if table:
            return lambda stream, *addresses: run(self._kinds, table // 2, addresses, constants[0])
        assert len(self._declared) == len(varying) + len(constants)
        assert [kind for kind, _ in self._declared[len(varying) :]] == [kind for kind, _ in constants]

        def fire(stream: int, *addresses: int) -> None:
            assert len(addresses) == len(varying)
            numbers = [*addresses, *[value for _, value in constants]]
            values = {name: value for (_, name), value in zip(self._declared, numbers, strict=True)}
            run(grid, self._kinds, *[0 if _ZERO.fullmatch(name) else values[name] for name in self._passed])

        return fire


def _norm_held(
    grid: Any, kinds: list[str], out: int, mean: int, rstd: int, input: int, weight: int, bias: int, rows: int,
    length: int, eps: float, other: int, total: int, copy: int,
) -> None:  # fmt: skip
    held, scale, shift, wide, another, narrow = kinds[:6]
    x, rms = _array(input, held, rows, length), kinds[-1] == "true"
    if other:
        x = (x.astype(np.float64) + _array(other, another, rows, length).astype(np.float64)).astype(x.dtype)
    if total:
        _array(total, held, rows, length)[...] = x
    exact = x.astype(np.float64)
    centre = 0 if rms else exact.mean(1, keepdims=True)
    factor = 1 / np.sqrt(((exact - centre) ** 2).mean(1, keepdims=True) + eps)
    if not rms:
        _array(mean, wide, rows, 1)[...] = centre
    _array(rstd, wide, rows, 1)[...] = factor
    y = (exact - centre) * factor
    y = y * _array(weight, scale, length).astype(np.float64) if weight else y
    y = y + _array(bias, shift, length).astype(np.float64) if bias else y
    for target, kind in ((out, held), (copy, narrow)):
        if target:
            _array(target, kind, rows, length)[...] = y.astype(_KINDS[held])


def _norm_backward(
    grid: int, kinds: list[str], dx: int, partial: int, grad: int, input: int, mean: int, rstd: int, weight: int,
    rows: int, length: int, other: int, copy: int,
) -> None:  # fmt: skip
    held, given, scale, wide, another, narrow = kinds[:6]
    rms, adds_up = kinds[9] == "true", kinds[12] == "true"
    own = _array(grad, given, rows, length).astype(np.float64)
    centre, factor = 0 if rms else _array(mean, wide, rows, 1), _array(rstd, wide, rows, 1).astype(np.float64)
    at = (_array(input, held, rows, length).astype(np.float64) - centre) * factor
    sums = _array(partial, wide, (1 if rms else 2) + adds_up, grid, length)
    sums[...] = 0
    for number, part in enumerate([own * at, own][: 1 if rms else 2]):
        sums[number, 0] = part.sum(0)
    own = own * _array(weight, scale, length).astype(np.float64) if weight else own
    average = 0 if rms else own.mean(1, keepdims=True)
    made = ((own - average - at * (own * at).mean(1, keepdims=True)) * factor).astype(_KINDS[held])
    if other:
        made = (made.astype(np.float64) + _array(other, another, rows, length).astype(np.float64)).astype(made.dtype)
    for target, kind in ((dx, held), (copy, narrow)):
        if target:
            _array(target, kind, rows, length)[...] = made
    if adds_up:
        sums[-1, 0] = (made.astype(_KINDS[narrow]) if copy else made).astype(np.float64).sum(0)


def _add_partials(
    grid: tuple[int, int], kinds: list[str], first: int, second: int, third: int, partial: int, blocks: int, length: int
) -> None:  # fmt: skip
    sums = _array(partial, kinds[3], grid[1], blocks, length).sum(1)
    for number, (target, kind) in enumerate(zip((first, second, third)[: grid[1]], kinds)):
        _array(target, kind, length)[...] = sums[number]


def _cast_chunk(kinds: list[str], capacity: int, addresses: Sequence[int], packed: bytes) -> None:
    fields = struct.unpack(f"={capacity}q{capacity}Iiiq", packed)
    sizes, first, count = fields[:capacity], fields[capacity : 2 * capacity], fields[2 * capacity]
    itemsize, chunks = np.dtype(_KINDS[kinds[0]]).itemsize, 0
    for number in range(count):
        assert first[number] == chunks
        chunks += -(-sizes[number] * itemsize // CHUNK_BYTES)
        source = _array(addresses[number], kinds[0], sizes[number])
        _array(addresses[capacity + number], kinds[1], sizes[number])[...] = source


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "norm_held": _norm_held, "norm_backward": _norm_backward, "add_partials": _add_partials,
    "cast_chunk": _cast_chunk,
}  # fmt: skip
