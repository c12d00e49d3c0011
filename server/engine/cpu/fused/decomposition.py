"""Computations that consist of others, of which all but one are arithmetic that compiled loops take over.

The parts are what the operation's own kernel does one after the other, so that results do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from server.engine.array_library.dtypes import COMPUTED_IN
from server.engine.programs.fused import Compute, Kernel, Register, compute_of
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import TABLE


def decomposed(kernel: Kernel) -> Kernel:
    """The same kernel, each sigmoid and what is made of it taken apart; registers have new numbers."""
    first = len(kernel.loads)
    computes: list[Compute] = []
    numbers = {number: number for number in range(first)}
    for number, compute in enumerate(kernel.computes, first):
        for part in _parts(_renumbered(compute, numbers), first + len(computes)):
            computes.append(part)
        numbers[number] = first + len(computes) - 1
    news = tuple([(Register(numbers[register.number]), meta) for register, meta in kernel.news])
    stores = tuple([(place, Register(numbers[register.number])) for place, register in kernel.stores])
    return kernel._replace(computes=tuple(computes), news=news, stores=stores)


def _renumbered(compute: Compute, numbers: Mapping[int, int]) -> Compute:
    args = [Register(numbers[arg.number]) if arg.__class__ is Register else arg for arg in compute.args]
    return compute._replace(args=tuple(args))


def _parts(compute: Compute, number: int) -> Iterator[Compute]:
    """The computations that one consists of; ``number`` is that of the register that the first part fills."""
    working = COMPUTED_IN.get(compute.compute, compute.compute)
    write = _FORMULAS.get(compute.op.name)
    if write is None or working not in (dtypes.float32, dtypes.float64):
        yield compute
        return
    meta = next((meta for meta in compute.bound if not meta.is_contiguous), compute.bound[0])
    parts = _Parts(meta.like(dtype=working), number)  # of a layout that tells how the operation alone is computed
    operands = [
        arg if meta.dtype is working else parts.add("_to_copy", arg, working, None)
        for arg, meta in zip(compute.args, compute.bound)
    ]
    write(parts, *operands)
    *before, last = parts.computes
    yield from before
    yield last._replace(dtype=compute.dtype)  # half precision stays in single precision here


class _Parts:
    """Computations that are written one after the other, of elements of one type."""

    def __init__(self, meta: Meta, number: int) -> None:
        self.computes: list[Compute] = []
        self._meta, self._number = meta, number

    def add(self, name: str, *args: Any) -> Register:
        """Write the operation of this name; returns the register of its result."""
        bound = [self._meta if arg.__class__ is Register else arg for arg in args]
        compute = compute_of(TABLE[name], args, tuple(bound), self._meta)
        if compute is None:
            raise TypeError(f"{name} is not element-wise")
        self.computes.append(compute)
        return Register(self._number + len(self.computes) - 1)


def _one_plus_exp(parts: _Parts, x: Register) -> Register:
    """exp(-x) + 1"""
    return parts.add("add", parts.add("exp", parts.add("neg", x)), 1, 1)


def _sigmoid(parts: _Parts, x: Register) -> Register:
    return parts.add("reciprocal", _one_plus_exp(parts, x))


def _silu(parts: _Parts, x: Register) -> None:
    parts.add("div", x, _one_plus_exp(parts, x))


def _silu_backward(parts: _Parts, grad: Register, x: Register) -> None:
    """((1 - s) * x + 1) * s * grad, where s is the sigmoid of x"""
    s = _sigmoid(parts, x)
    slope = parts.add("add", parts.add("mul", parts.add("rsub", s, 1, 1), x), 1, 1)
    parts.add("mul", parts.add("mul", slope, s), grad)


_FORMULAS: Mapping[str, Callable[..., Any]] = {"sigmoid": _sigmoid, "silu": _silu, "_silu_backward": _silu_backward}
