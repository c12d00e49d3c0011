"""Random operations as prepared kernels: one launch that draws, shapes and stores; the numbers are the host's.

Normal numbers of float32 and less are the host's but for the last bits; all others are the same.

Numbers are counted row-major, whatever the layout. A launch reserves its words in the session's generator, so the
stream goes on as if the host had drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from server.engine import context, keys
from server.engine.cuda.pointwise.pointwise import computing
from server.engine.cuda.runtime.geometry import VECTOR_BYTES, Layout, blocks, layout_of, layout_type, packed
from server.engine.cuda.runtime.launch import load, nothing
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.in_c.launches import can_chain
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op, random
from telegrad_protocol.ops.layers import nn

from .draws_text import DISTRIBUTIONS, THREADS, Drawing, text_of

_MANTISSA_BITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24}
_NARROW_SPAN = 1 << 24


class Recipe(NamedTuple):
    """A distribution, its numbers as kernel parameters, and the expression that each value is stored as."""

    distribution: str
    numbers: Sequence[tuple[str, str, Any]] = ()
    text: str = "value"


ByPart = Callable[[DType, int], "Recipe | None"]
"""What to draw for a part of the elements, of the given type and number; None where a generic kernel must run."""


def _floating(name: str, dtype: DType) -> tuple[str, str]:
    """The distribution for a type of elements, and the type that its values come in."""
    return (f"{name}64", "double") if dtype is dtypes.float64 else (name, "float")


def _uniform(dtype: DType, low: float = 0.0, high: float = 1.0) -> Recipe:
    name, kind = _floating("uniform", dtype)
    numbers: list[tuple[str, str, Any]] = []
    if kind == "float":
        bits = _MANTISSA_BITS[dtype]
        numbers = [("shift", "int", 32 - bits), ("scale", "float", 2.0**-bits)]
    if (low, high) == (0.0, 1.0):
        return Recipe(name, numbers)
    return _shifted(Recipe(name, numbers), kind, high - low, low)


def _normal(dtype: DType, mean: float = 0.0, std: float = 1.0) -> Recipe:
    name, kind = _floating("normal", dtype)
    return _shifted(Recipe(name), kind, std, mean)


def _shifted(recipe: Recipe, kind: str, factor: float, offset: float) -> Recipe:
    """Values times a factor, plus an offset, each step rounded as on the host."""
    step = "d" if kind == "double" else "f"
    numbers = [*recipe.numbers, ("spread", kind, _held(factor, kind)), ("offset", kind, _held(offset, kind))]
    return Recipe(recipe.distribution, numbers, f"__{step}add_rn(__{step}mul_rn(value, spread), offset)")


def _held(number: float, kind: str) -> float:
    """A number as the kernel's type holds it; infinite where it does not fit."""
    return float(np.float32(number)) if kind == "float" else float(number)


def _exponential(dtype: DType, rate: float) -> Recipe:
    return Recipe(_floating("exponential", dtype)[0], [("factor", "double", -1.0 / rate)])


def _integers(low: int, high: int) -> Recipe | None:
    span = high - low
    if span <= 0 or low < -(1 << 63) or high > 1 << 63:
        return None
    signed = (low + (1 << 63)) % (1 << 64) - (1 << 63)
    name = "integers" if span <= _NARROW_SPAN else "integers64"
    return Recipe(name, [("span", "u64", span % (1 << 64)), ("low", "i64", signed)])


def _bernoulli(p: float, target: Meta) -> Recipe | None:
    """A word is below a limit where it is below the next integer. Complex numbers are drawn as one, not in parts."""
    if target.dtype.is_complex:
        return None
    return Recipe("words", [("limit", "u64", math.ceil(p * 2.0**32))], "(u64)value < limit")


class Fired(NamedTuple):
    """A prepared launch, and the words that it takes of the generator."""

    fire: Callable[..., None]
    words: int
    offsets: tuple[int, ...]


def _prepare(recipe: Recipe, outs: Sequence[tuple[Meta, str]], operand: Meta | None = None) -> Fired:
    """Draw one number per element of ``outs``, all of one shape, and store it in each as its expression says."""
    metas = [meta for meta, _ in outs] + ([operand] if operand else [])
    shape, count = metas[0].shape, metas[0].numel
    layout = layout_of(shape, metas, ordered=True)
    per_block = DISTRIBUTIONS[recipe.distribution][1]
    itemsize = max(meta.dtype.itemsize for meta in metas)
    blocks_per_thread = max(1, VECTOR_BYTES // (itemsize * per_block))
    is_scattered = not _is_row_major(layout, blocks_per_thread * per_block)
    drawing = Drawing(
        recipe.distribution, tuple([(CTYPES[meta.dtype], text) for meta, text in outs]),
        CTYPES[operand.dtype] if operand else "", tuple([(name, kind) for name, kind, _ in recipe.numbers]),
        blocks_per_thread,
        layout_type(layout) if is_scattered else "",
    )  # fmt: skip
    constants: list[tuple[str, Any] | bytes] = [(kind, value) for _, kind, value in recipe.numbers]
    constants.append(("i64", count))
    if is_scattered:
        constants.append(packed(layout))
    grid = blocks(count, THREADS * blocks_per_thread * per_block)
    fire = load(text_of(drawing), "drawing").prepare(grid, THREADS, "QQP" + "P" * len(metas), constants)
    words = count * (4 // per_block)
    return Fired(fire, words, tuple([meta.offset * meta.dtype.itemsize for meta in metas]))


def _is_row_major(layout: Layout, width: int) -> bool:
    """Whether threads may move vectors of ``width`` elements."""
    runs = all(set(steps) <= {1} for steps in layout.strides) and len(layout.shape) <= 1
    return runs and not any(offset % width for offset in layout.offsets)


def _filling(
    backend: Backend, target: Meta, recipe: Callable[[DType, int], Recipe | None], at: int | None
) -> Launch | None:
    """A launch that overwrites the first output, or the argument number ``at``.

    ``recipe`` is asked for each part of the elements: real ones have one, complex ones two, drawn one after the other.
    """
    if not target.numel:
        return nothing
    parts = [(part, recipe(part.dtype, number)) for number, part in enumerate(_parts(target))]
    steps = [_prepare(made, [(part, made.text)]) for part, made in parts if made is not None]
    if len(steps) < len(parts):
        return None
    device = backend.device

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        pointer = (outs[0] if at is None else args[at]).storage.block.pointer
        generator = context.current.generators[device]
        for fire, words, offsets in steps:
            fire(backend.stream, *generator.draw(words), pointer + offsets[0])

    return launch


def _parts(meta: Meta) -> list[Meta]:
    """The real and the imaginary parts of complex elements, else the elements."""
    if not meta.dtype.is_complex:
        return [meta]
    strides = tuple([2 * step for step in meta.strides])
    part = meta.dtype.to_real()
    return [Meta.of(meta.shape, part, meta.device, strides, 2 * meta.offset + k) for k in (0, 1)]


def _gaussian(mean: float, std: float, target: Meta) -> Callable[[DType, int], Recipe]:
    """Complex numbers share the variance among their parts; the mean is real."""
    share = std / math.sqrt(2 if target.dtype.is_complex else 1)
    return lambda dtype, part: _normal(dtype, 0.0 if part else mean, share)


_EXACT_BITS = {
    dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53, dtypes.bool_: 1, dtypes.uint8: 8,
}  # fmt: skip


def _all_integers(dtype: DType) -> Recipe | None:
    """Floating-point types hold every integer up to a power of two, that one included."""
    bits = _EXACT_BITS.get(dtype, 8 * dtype.itemsize - 1)
    return _integers(0, (1 << bits) + dtype.is_floating_point)


_RECIPES: dict[Op, Callable[[dict[str, Any], Meta], ByPart]] = {
    random.rand: lambda a, target: lambda dtype, part: _uniform(dtype),
    random.rand_like: lambda a, target: lambda dtype, part: _uniform(dtype),
    random.randn: lambda a, target: _gaussian(0.0, 1.0, target),
    random.randn_like: lambda a, target: _gaussian(0.0, 1.0, target),
    random.normal_size: lambda a, target: _gaussian(a["mean"], a["std"], target),
    random.randint: lambda a, target: lambda dtype, part: _integers(0, a["high"]),
    random.randint_low: lambda a, target: lambda dtype, part: _integers(a["low"], a["high"]),
    random.randint_like: lambda a, target: lambda dtype, part: _integers(0, a["high"]),
    random.randint_like_low: lambda a, target: lambda dtype, part: _integers(a["low"], a["high"]),
    random.bernoulli_p: lambda a, target: lambda dtype, part: _bernoulli(a["p"], target),
    random.bernoulli_: lambda a, target: lambda dtype, part: _bernoulli(a["p"], target),
    random.uniform_: lambda a, target: lambda dtype, part: _uniform(dtype, a["a"], a["b"]),
    random.normal_: lambda a, target: _gaussian(a["mean"], a["std"], target),
    random.exponential_: lambda a, target: lambda dtype, part: _exponential(dtype, a["lambd"]),
    random.random_: lambda a, target: lambda dtype, part: _all_integers(dtype),
    random.random_to_: lambda a, target: lambda dtype, part: _integers(0, a["to"]),
    random.random_range_: lambda a, target: lambda dtype, part: _integers(a["low"], a["to"]),
}  # fmt: skip


def draw(request: Request) -> Launch | None:
    """Overwrite a new tensor, or the first operand, with numbers of a distribution."""
    at = 0 if request.op.mutates else None
    target = request.args[0] if request.op.mutates else request.outs[0]
    return _filling(request.backend, target, _RECIPES[request.op](request.named, target), at)


for _op in _RECIPES:
    prepares(_op, keys.CUDA, deferrable=can_chain)(draw)


@prepares(random.bernoulli, keys.CUDA, deferrable=can_chain)
def draw_by_probabilities(request: Request) -> Launch | None:
    """1 with the probability that each element holds."""
    text = "(double)value < cast<double>(input) * 4294967296.0"
    return _filtering(request, Recipe("words"), [text])


@prepares(nn.native_dropout, keys.CUDA, deferrable=can_chain)
def drop(request: Request) -> Launch | None:
    """Elements scaled or dropped, and which were kept, in one pass."""
    meta, p, train = request.args
    kept = _bernoulli(1.0 - p, meta)
    if train is False or kept is None:
        return None
    kind = CTYPES[computing(meta.dtype)]
    scale = _held(1.0 / (1.0 - p) if p < 1.0 else 0.0, kind)
    recipe = Recipe(kept.distribution, [*kept.numbers, ("scale", kind, scale)])
    return _filtering(request, recipe, [f"cast<{kind}>(input) * ({kind})({kept.text}) * scale", kept.text])


def _filtering(request: Request, recipe: Recipe, texts: Sequence[str]) -> Launch:
    """A launch that draws one number per element of the first operand and stores results of both."""
    if not request.outs[0].numel:
        return nothing
    fire, words, offsets = _prepare(recipe, list(zip(request.outs, texts, strict=True)), request.args[0])
    backend, device = request.backend, request.backend.device

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        generator = context.current.generators[device]
        drawn = generator.draw(words)
        pointers = [
            value.storage.block.pointer + offset for value, offset in zip((*outs, args[0]), offsets, strict=True)
        ]
        fire(backend.stream, *drawn, *pointers)

    return launch
