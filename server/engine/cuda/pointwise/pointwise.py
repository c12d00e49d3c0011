"""Element-wise operations as prepared kernels: their expression, their operands' layout, and the launch.

Every operation that has an expression gets one generated kernel per combination of types and kind of layout; sizes and
numbers are parameters of the launch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from server.engine import keys
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.dtypes import COMPUTED_IN, HALVES, NUMPY_DTYPES
from server.engine.cuda.runtime.geometry import (
    VECTOR_BYTES,
    blocks,
    layout_of,
    layout_type,
    packed,
    vector_width,
)
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.operands import ARGUMENT, NUMBER, RESULT, Place, on_operands
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import TABLE

from .expressions import EXPRESSIONS, LIGHT, OF_ANY_NUMBER, Chosen, Whole, Work
from .expressions_complex import COMPLEX
from .expressions_rare import RARE
from .expressions_text import GAMMA, REAL, TO_HALF
from .pointwise_text import THREADS, Kernel, Operand, text_of

NAMES = re.compile(r"[a-z_]\w*")
"""What may be the name of an operand or a number in an expression."""
CONDITIONS = frozenset(("condition", "mask"))
_MOST_UNROLLED = 4
_READ_AS = frozenset((dtypes.float32, dtypes.float64))
"""Types in which launches read numbers from their arguments."""
_EXACT = 1 << 53
"""Smaller integers are exact as numbers of double precision."""
Fire = Callable[..., None]


def computing(dtype: DType) -> DType:
    """The type that elements of ``dtype`` are computed in."""
    return COMPUTED_IN.get(dtype, dtype)


def prepare(request: Request) -> Launch | None:
    """The prepared kernel of an operation that has an expression."""
    expression = EXPRESSIONS[request.op.name]
    out = request.outs[0]
    compute = computing(request.compute or out.dtype)
    attributes = request.named
    chosen = expression.choose(attributes, compute, out.dtype)
    if chosen is None or (request.reads_numbers and not _can_read(attributes, chosen, compute)):
        return None
    return elementwise(
        request.backend, out, attributes, chosen, compute, expression.work, reads_numbers=request.reads_numbers
    )


def _can_read(attributes: Mapping[str, Any], chosen: Chosen, compute: DType) -> bool:
    """Whether a launch can read the numbers of an expression from its arguments, as floats."""
    numbers = [item for item in attributes.values() if is_number(item)]
    is_plain = compute in _READ_AS and chosen.compute is None and not chosen.numbers
    return is_plain and all(
        [item.__class__ is float or (item.__class__ is int and abs(item) < _EXACT) for item in numbers]
    )


def elementwise(
    backend: Backend,
    out: Meta,
    attributes: Mapping[str, Any],
    chosen: Chosen,
    compute: DType,
    work: Work = LIGHT,
    target: int | None = None,
    reads_numbers: bool = False,
) -> Launch:
    """A launch that computes ``chosen`` of each element.

    ``attributes`` are the arguments by name in the order in which launches get them: metas, and numbers. The result
    goes to the first output; or over the argument number ``target``. With ``reads_numbers`` each launch takes numbers
    from its arguments, otherwise they are those of ``attributes``.
    """
    if not out.numel:
        return nothing
    fire, names, offsets = generated(out, attributes, chosen, compute, work, reads_numbers)
    order = list(attributes)
    read = _read(attributes, chosen)[1] if reads_numbers else ()
    numbers = [(NUMBER, order.index(name), compute.itemsize) for name in read]
    return launcher(fire, backend, [order.index(name) for name in names], offsets, target, numbers)


def generated(
    out: Meta,
    attributes: Mapping[str, Any],
    chosen: Chosen,
    compute: DType,
    work: Work = LIGHT,
    reads_numbers: bool = False,
) -> tuple[Fire, list[str], list[int]]:
    """The kernel's launch, the operands that it reads, and where in their memory the result and they begin, in bytes.

    A launch takes the stream and the addresses of the result and the operands; with ``reads_numbers`` then each number,
    as the integer of the same bits.
    """
    compute = chosen.compute or compute
    names, numbers = _read(attributes, chosen)
    metas = [out, *[attributes[name] for name in names]]
    layout = layout_of(out.shape, metas)
    width, head = vector_width(layout, [meta.dtype.itemsize for meta in metas])
    is_flat = layout.is_flat
    singles = [not any(steps) if is_flat else width > 1 and steps[-1] == 0 for steps in layout.strides[1:]]
    text, unroll = _text(
        chosen.text, work, compute, tuple(names), tuple([meta.dtype for meta in metas]), tuple(singles),
        tuple([(name, kind_of(value, compute)) for name, value in numbers.items()]),
        "" if is_flat else layout_type(layout), width,
    )  # fmt: skip
    varying = "P" * len(metas) + "Q" * (len(numbers) if reads_numbers else 0)
    constants = [] if reads_numbers else [constant_of(value, compute) for value in numbers.values()]
    vectors = (layout.numel - head) // width
    if is_flat:
        constants += ("i64", vectors), ("int", head), ("int", layout.numel - head - vectors * width)
    else:
        constants += packed(layout, width), ("i64" if layout.is_wide else "unsigned", vectors)
    fire = load(text, "pointwise").prepare(blocks(vectors, THREADS * unroll), THREADS, varying, constants)
    return fire, names, [meta.offset * meta.dtype.itemsize for meta in metas]


def _read(attributes: Mapping[str, Any], chosen: Chosen) -> tuple[list[str], dict[str, Any]]:
    """The names of the operands that an expression reads, and its numbers by name."""
    used = _names_in(chosen.text)
    names: list[str] = []
    numbers: dict[str, Any] = {}
    for name, argument in attributes.items():
        if name in used:
            if argument.__class__ is Meta:
                names.append(name)
            elif is_number(argument):
                numbers[name] = argument
    for name, value in chosen.numbers.items():
        if name in used:
            numbers[name] = value
    return names, numbers


@functools.lru_cache(maxsize=1 << 12)
def _text(
    expression: str, work: Work, compute: DType, names: tuple[str, ...], dtypes: tuple[DType, ...],
    singles: tuple[bool, ...], numbers: tuple[tuple[str, str], ...], layout: str, width: int,
) -> tuple[str, int]:  # fmt: skip
    """The text of a kernel, which is the same for many shapes, and how many vectors its threads take at a time.

    ``dtypes`` are those of the result and of the operands.
    """
    out, *held = dtypes
    computed = ["bool" if name in CONDITIONS else CTYPES[compute] for name in names]
    operands = tuple(map(Operand, names, [CTYPES[dtype] for dtype in held], computed, singles))
    unroll = _unroll(work, out, max([dtype.itemsize for dtype in dtypes]) * width)
    kernel = Kernel(
        expression, _library(expression, compute, out), operands, numbers, CTYPES[compute], CTYPES[out], layout,
        width, unroll, work.is_function,
    )  # fmt: skip
    return text_of(kernel), unroll


def _unroll(work: Work, out: DType, nbytes: int) -> int:
    """Vectors of ``nbytes`` per thread: one of full size keeps the memory busy, shorter ones take more."""
    wanted = work.half_vectors if out in HALVES else work.vectors
    return 1 if work.is_function else max(wanted, min(_MOST_UNROLLED, VECTOR_BYTES // nbytes))


def kind_of(value: Any, compute: DType) -> str:
    """The C++ type of the parameter that a number is."""
    return "i64" if isinstance(value, Whole) else CTYPES[compute]


def constant_of(value: Any, compute: DType) -> bytes | tuple[str, int]:
    """A number as a constant of a launch."""
    if isinstance(value, Whole):
        return "i64", value.value
    return _bytes_of(value, repr(value), compute)


@functools.lru_cache(maxsize=1 << 10)
def _bytes_of(value: Any, shown: str, compute: DType) -> bytes:
    """A number as a type holds it; ``shown`` tells those apart that are equal, such as 0.0 and -0.0."""
    return number(value, NUMPY_DTYPES[compute]).tobytes()  # type: ignore[no-any-return]


def is_number(argument: Any) -> bool:
    """Whether an argument is a Python number."""
    return isinstance(argument, (bool, int, float, complex))


@functools.lru_cache(maxsize=1 << 12)
def _names_in(text: str) -> frozenset[str]:
    return frozenset(NAMES.findall(text))


@functools.lru_cache(maxsize=1 << 12)
def _library(text: str, compute: DType, out: DType) -> str:
    return called_in(text, out in HALVES and compute is dtypes.float32, compute.is_complex)


def called_in(text: str, is_half: bool, is_complex: bool) -> str:
    """The functions that expressions may call; approximate ones where nothing but half precision comes of them."""
    gamma = GAMMA if "gamma_of" in text else ""
    rare = RARE if "rare_" in text else ""
    return f"{TO_HALF if is_half else ''}{REAL}{gamma}{COMPLEX if is_complex else ''}{rare}"


def launcher(
    fire: Fire, backend: Backend, positions: list[int], offsets: list[int], target: int | None,
    numbers: Sequence[Place] = (),
) -> Launch:  # fmt: skip
    """What fills pointers in: that of the result first, then those of the arguments at ``positions``.

    ``offsets`` are those of the result and of the arguments, in bytes; the result may be the argument ``target``.
    ``numbers`` are the places of numbers, which follow.
    """
    first, *others = offsets
    into = (RESULT, 0, first) if target is None else (ARGUMENT, target, first)
    return on_operands(backend, fire, [into, *zip(repeat(ARGUMENT), positions, others), *numbers])


for _name in EXPRESSIONS:
    _reads = _name in OF_ANY_NUMBER
    prepares(TABLE[_name], keys.CUDA, elementwise=True, deferrable=True, converts=True, reads_numbers=_reads)(prepare)
