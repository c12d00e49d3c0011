"""Element-wise operations as prepared kernels: their expression, their operands' layout, and the launch.

Every operation that has an expression gets one generated kernel per combination of types and kind of layout; sizes and
numbers are parameters of the launch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.engine import keys
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.dtypes import COMPUTED_IN, HALVES, NUMPY_DTYPES
from server.engine.cuda.runtime.geometry import (
    VECTOR_BYTES,
    Layout,
    blocks,
    layout_of,
    layout_type,
    packed,
    vector_width,
)
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import TABLE

from .expressions import EXPRESSIONS, LIGHT, Chosen, Whole, Work
from .expressions_complex import COMPLEX
from .expressions_text import GAMMA, REAL, TO_HALF
from .pointwise_text import THREADS, Kernel, Operand, text_of

NAMES = re.compile(r"[a-z_]\w*")
"""What may be the name of an operand or a number in an expression."""
CONDITIONS = frozenset(("condition", "mask"))
_MOST_UNROLLED = 4
Fire = Callable[..., None]
Constants = Sequence[bytes | tuple[str, int]]


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
    return chosen and elementwise(request.backend, out, attributes, chosen, compute, expression.work)


def elementwise(
    backend: Backend,
    out: Meta,
    attributes: Mapping[str, Any],
    chosen: Chosen,
    compute: DType,
    work: Work = LIGHT,
    target: int | None = None,
) -> Launch:
    """A launch that computes ``chosen`` of each element.

    ``attributes`` are the arguments by name in the order in which launches get them: metas, and numbers. The result
    goes to the first output; or over the argument number ``target``.
    """
    if not out.numel:
        return nothing
    fire, names, offsets = generated(out, attributes, chosen, compute, work)
    positions = [list(attributes).index(name) for name in names]
    return launcher(fire, backend, positions, offsets, target)


def generated(
    out: Meta, attributes: Mapping[str, Any], chosen: Chosen, compute: DType, work: Work = LIGHT
) -> tuple[Fire, list[str], list[int]]:
    """The kernel's launch, the operands that it reads, and where in their memory the result and they begin, in bytes.

    A launch takes the stream and the addresses of the result and the operands.
    """
    compute = chosen.compute or compute
    used = _names_in(chosen.text)
    names = [name for name, arg in attributes.items() if isinstance(arg, Meta) and name in used]
    metas = [attributes[name] for name in names]
    numbers = {**{n: a for n, a in attributes.items() if is_number(a)}, **chosen.numbers}
    numbers = {name: value for name, value in numbers.items() if name in used}
    layout = layout_of(out.shape, [out, *metas])
    itemsizes = [meta.dtype.itemsize for meta in (out, *metas)]
    width, head = vector_width(layout, itemsizes)
    kernel = Kernel(
        chosen.text, _library(chosen.text, compute, out.dtype), _operands(names, metas, layout, width, compute),
        tuple([(name, kind_of(value, compute)) for name, value in numbers.items()]), CTYPES[compute], CTYPES[out.dtype],
        "" if layout.is_flat else layout_type(layout), width, _unroll(work, out.dtype, max(itemsizes) * width),
        work.is_function,
    )  # fmt: skip
    constants = [constant_of(value, compute) for value in numbers.values()]
    fire = _prepared(kernel, layout, head, constants, 1 + len(metas))
    return fire, names, [meta.offset * meta.dtype.itemsize for meta in (out, *metas)]


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
    return number(value, NUMPY_DTYPES[compute]).tobytes()  # type: ignore[no-any-return]


def is_number(argument: Any) -> bool:
    """Whether an argument is a Python number."""
    return isinstance(argument, (bool, int, float, complex))


@functools.lru_cache(maxsize=1 << 12)
def _names_in(text: str) -> frozenset[str]:
    return frozenset(NAMES.findall(text))


@functools.lru_cache(maxsize=1 << 12)
def _library(text: str, compute: DType, out: DType) -> str:
    half = TO_HALF if out in HALVES and compute is dtypes.float32 else ""
    gamma = GAMMA if "gamma_of" in text else ""
    return f"{half}{REAL}{gamma}{COMPLEX if compute.is_complex else ''}"


def _operands(
    names: Sequence[str], metas: Sequence[Meta], layout: Layout, width: int, compute: DType
) -> tuple[Operand, ...]:
    operands = []
    for k, (name, meta) in enumerate(zip(names, metas, strict=True), 1):
        computed = "bool" if name in CONDITIONS else CTYPES[compute]
        is_single = not any(layout.strides[k]) if layout.is_flat else layout.inner(k) == 0 and width > 1
        operands.append(Operand(name, CTYPES[meta.dtype], computed, is_single))
    return tuple(operands)


def _prepared(
    kernel: Kernel, layout: Layout, head: int, constants: Sequence[bytes | tuple[str, int]], pointers: int
) -> Fire:
    """The launch over a layout: vectors, and in flat layouts the single elements before and after them."""
    function = load(text_of(kernel), "pointwise")
    vectors = (layout.numel - head) // kernel.width
    geometry: list[tuple[str, int] | bytes]
    if kernel.layout:
        geometry = [packed(layout, kernel.width), ("i64" if layout.is_wide else "unsigned", vectors)]
    else:
        tail = layout.numel - head - vectors * kernel.width
        geometry = [("i64", vectors), ("int", head), ("int", tail)]
    grid = blocks(vectors, THREADS * kernel.unroll)
    return function.prepare(grid, THREADS, "P" * pointers, [*constants, *geometry])


def launcher(fire: Fire, backend: Backend, positions: list[int], offsets: list[int], target: int | None) -> Launch:
    """What fills pointers in: that of the result first, then those of the arguments at ``positions``.

    Each count has a function of its own, since this runs with every operation.
    """
    if target is not None or len(positions) > 3:
        return _launcher_of_many(fire, backend, positions, offsets, target)
    if any(offsets):
        return _launcher_into(fire, backend, positions, offsets)
    return _launcher_at_beginnings(fire, backend, positions)


def _launcher_at_beginnings(fire: Fire, backend: Backend, positions: list[int]) -> Launch:
    """The same where all begin where their memory does, as most do."""
    p, q, r = (*positions, 0, 0, 0)[:3]

    def none(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, outs[0].storage.block.pointer)

    def one(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, outs[0].storage.block.pointer, args[p].storage.block.pointer)

    def two(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(
            backend.stream, outs[0].storage.block.pointer, args[p].storage.block.pointer, args[q].storage.block.pointer
        )

    def three(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(
            backend.stream, outs[0].storage.block.pointer,
            args[p].storage.block.pointer, args[q].storage.block.pointer, args[r].storage.block.pointer,
        )  # fmt: skip

    return (none, one, two, three)[len(positions)]


def _launcher_into(fire: Fire, backend: Backend, positions: list[int], offsets: list[int]) -> Launch:
    p, q, r = (*positions, 0, 0, 0)[:3]
    o, a, b, c = (*offsets, 0, 0, 0)[:4]

    def none(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, outs[0].storage.block.pointer + o)

    def one(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(backend.stream, outs[0].storage.block.pointer + o, args[p].storage.block.pointer + a)

    def two(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(
            backend.stream, outs[0].storage.block.pointer + o,
            args[p].storage.block.pointer + a, args[q].storage.block.pointer + b,
        )  # fmt: skip

    def three(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        fire(
            backend.stream, outs[0].storage.block.pointer + o, args[p].storage.block.pointer + a,
            args[q].storage.block.pointer + b, args[r].storage.block.pointer + c,
        )  # fmt: skip

    return (none, one, two, three)[len(positions)]


def _launcher_of_many(
    fire: Fire, backend: Backend, positions: list[int], offsets: list[int], target: int | None
) -> Launch:
    sources = list(zip(positions, offsets[1:], strict=True))

    def many(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        out = outs[0] if target is None else args[target]
        pointers = [args[position].storage.block.pointer + offset for position, offset in sources]
        fire(backend.stream, out.storage.block.pointer + offsets[0], *pointers)

    return many


for _name in EXPRESSIONS:
    prepares(TABLE[_name], keys.CUDA, elementwise=True, deferrable=True, converts=True)(prepare)
