"""Element-wise steps that are executed as one: what they are made of, and what makes kernels of them on each device.

A fused kernel reads each operand once, holds what is between in registers or in the cache, and writes what others read.
Half precision stays float32 between its steps, as it does in PyTorch's compiled programs; a cast that a program asks
for is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from server.engine.operators import OPERATORS
from server.engine.value import Backend
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op

from .joined import Joined


@dataclass(frozen=True, slots=True)
class Register:
    """Stands for an operand that was read, or for the result of a computation, by its number among all of these."""

    number: int

    def __repr__(self) -> str:
        return f"r{self.number}"


class Compute(NamedTuple):
    """One element-wise operation: bound arguments with registers and numbers, and the same with metas for registers.

    ``compute`` is the type that operands named in ``promoted`` are cast to first. ``dtype`` is the result's.
    """

    op: Op
    args: tuple[Any, ...]
    bound: tuple[Any, ...]
    promoted: tuple[int, ...]
    compute: DType
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.op.name}({', '.join(map(repr, self.args))}) as {self.dtype.name}"


class Kernel(NamedTuple):
    """Computations on operands that broadcast to one shape; registers are the operands first, then the results.

    ``news`` are new values, with their metas and the registers that they hold; ``stores`` are the operands that are
    written to, by their number, and the registers they get.
    """

    shape: Size
    loads: tuple[Meta, ...]
    computes: tuple[Compute, ...]
    news: tuple[tuple[Register, Meta], ...]
    stores: tuple[tuple[int, Register], ...]

    @property
    def device(self) -> Device:
        """Where it runs."""
        return (self.loads or [meta for _, meta in self.news])[0].device

    @property
    def dtypes(self) -> list[DType]:
        """The types of all registers."""
        return [meta.dtype for meta in self.loads] + [compute.dtype for compute in self.computes]

    def __repr__(self) -> str:
        first = len(self.loads)
        lines = [f"r{number} = {meta!r}, strides {list(meta.strides)}" for number, meta in enumerate(self.loads)]
        lines += [f"r{number} = {compute!r}" for number, compute in enumerate(self.computes, first)]
        lines += [f"store {register} into r{place}" for place, register in self.stores]
        return "\n".join([*lines, *[f"return {register} as {meta!r}" for register, meta in self.news]])


class Executor(NamedTuple):
    """What executes a kernel: takes values for its operands, returns the new values; and the text it was made from.

    ``code_bytes`` is what the host holds for its machine code, with what the compiler keeps beside it.
    """

    run: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    text: str
    code_bytes: int


Takes: TypeAlias = Callable[[Compute, Meta], bool]
"""Whether a device can execute an operation, whose result has a meta, as a part of a fused kernel."""
Makes: TypeAlias = Callable[[Backend, Kernel], Executor]


class Pending(Protocol):
    """Kernels that are compiled beside this process, where they were not before."""

    def is_over(self) -> bool:
        """Whether all were compiled or have failed; never waits."""

    def has_failed(self, kernel: Kernel | Joined) -> bool:
        """Whether one of them cannot be made."""


Awaits: TypeAlias = Callable[[Backend, Sequence[Kernel | Joined]], Pending]
"""Has what kernels need compiled, where that takes long."""


class Fuser(NamedTuple):
    """What a device fuses, and how; ``most_operands`` are those that one kernel may read and write.

    ``awaits`` is None where kernels are made at once.
    """

    takes: Takes
    makes: Makes
    most_operands: int
    awaits: Awaits | None = None


FUSERS: dict[int, Fuser] = {}
"""By the key of the device's backend. A device without one executes each step alone."""


class Joiner(NamedTuple):
    """Whether a device's kernel takes what is joined, and what makes it."""

    takes: Callable[[Joined], bool]
    makes: Callable[[Backend, Joined], Executor]


JOINERS: dict[tuple[int, str], Joiner] = {}
"""By the key of the device's backend, and by kind. A device without one executes joined steps one after the other."""


def joins(key: int, joined: Joined) -> bool:
    """Whether steps are to be joined on a device."""
    joiner = JOINERS.get((key, joined.kind))
    return joiner is None or joiner.takes(joined)


_MOVES: dict[str, int] = {"_to_copy": 0, "clone": 0, "masked_fill": 0, "copy_": 1}
"""Operations that have no promotion and are element-wise all the same, and the operand whose type they compute in."""
_CAST = OPERATORS["_to_copy"].op


def compute_of(op: Op, args: tuple[Any, ...], bound: tuple[Any, ...], out: Meta) -> Compute | None:
    """The element-wise computation that an operation is, on arguments with registers; None if it is none.

    ``bound`` has metas in the places of registers, ``out`` is the result's meta or that of the target.
    """
    base = op.base
    count = len(base.params)
    args, bound = args[:count], bound[:count]
    if base.name in _MOVES:
        place = _MOVES[base.name]
        if base.name == "masked_fill":
            return Compute(base, args, bound, (0,), out.dtype, out.dtype)
        dtype = out.dtype
        return Compute(_CAST, (args[place], dtype, None), (bound[place], dtype, None), (), bound[place].dtype, dtype)
    if not base.promotion or base.is_random:
        return None
    return Compute(base, args, bound, base.promoted, base.compute_dtype(bound), base.output_dtype(bound))


def cast_of(register: Register, meta: Meta, dtype: DType) -> Compute:
    """The conversion of a register to another type."""
    return Compute(_CAST, (register, dtype, None), (meta, dtype, None), (), meta.dtype, dtype)


def is_cast(compute: Compute) -> bool:
    """Whether a computation does nothing but convert its operand."""
    return compute.op is _CAST


def may_refuse(compute: Compute) -> bool:
    """Whether the operation looks at elements before it computes: a division of integers refuses zeros."""
    return compute.op.name in _DIVISIONS and compute.compute.category < dtypes.FLOAT


_DIVISIONS = frozenset(("div.mode", "floor_divide", "remainder", "fmod"))
