"""Computations that consist of others, of which all but one are arithmetic that compiled loops take over.

The parts are what the operation's own kernel does one after the other, so that results do not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from server.engine.array_library.dtypes import COMPUTED_IN
from server.engine.programs.fused import Compute, Kernel, Register, compute_of
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import TABLE


def decomposed(kernel: Kernel) -> Kernel:
    """The same kernel, each sigmoid taken apart; registers have new numbers."""
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
    """1 / (exp(-x) + 1); ``number`` is that of the register that the first part fills."""
    working = COMPUTED_IN.get(compute.compute, compute.compute)
    if compute.op.name != "sigmoid" or working not in (dtypes.float32, dtypes.float64):
        yield compute
        return
    meta: Meta = compute.bound[0]
    operand = compute.args[0]
    if meta.dtype is not working:
        yield _one("_to_copy", (operand, working, None), meta, working)
        operand, number = Register(number), number + 1
    yield _one("neg", (operand,), meta, working)
    yield _one("exp", (Register(number),), meta, working)
    yield _one("add", (Register(number + 1), 1, 1), meta, working)
    last = _one("reciprocal", (Register(number + 2),), meta, working)
    yield last._replace(dtype=compute.dtype)  # half precision stays in single precision here


def _one(name: str, args: tuple[Any, ...], meta: Meta, working: Any) -> Compute:
    bound = (meta if name == "_to_copy" else meta.like(dtype=working), *args[1:])
    compute = compute_of(TABLE[name], args, bound, meta.like(dtype=working))
    if compute is None:
        raise TypeError(f"{name} is not element-wise")
    return compute
