"""Products of few rows with the normalization of the rows before and element-wise steps after: one kernel for all.

Products and normalized rows are rounded where single operations round them; what is computed of a product is computed
as in fused kernels. Sums are made in the same order every time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from server.engine import context, keys
from server.engine.cuda.pointwise.fused import Numbers, computations_of, library_of, running, stores_of
from server.engine.cuda.pointwise.fused_text import Function, FusedText, functions_of
from server.engine.cuda.rows.rowwise import byte_offset
from server.engine.cuda.runtime.geometry import VECTOR_BYTES
from server.engine.cuda.runtime.kept_modules import MODULE_BYTES, load_kept
from server.engine.cuda.runtime.launch import multiprocessors
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import PRODUCTS, Joined
from server.engine.programs.joins.product_parts import Part, Products
from server.engine.value import Backend, Value
from telegrad_protocol.layout import Size, broadcast_strides
from telegrad_protocol.meta import Meta

from . import few_rows
from .few_rows_text import WARPS
from .joined_text import NAME, PartText, ProductsText, held_blocks, pointers_of, steps_of, text_of
from .layout import flattened
from .operations import linear_product

_THREADS: Final = 32 * WARPS
_MOST_STAGED: Final = 32 << 10
"""Bytes of normalized rows that a block holds: with more, fewer blocks are there to read weights."""
_MOST_ITEMS: Final = 4
"""Vectors of a row that a thread holds while it is normalized."""
_LEFT: Final = 0.25
"""The part of a device that is left to the next kernel, which fetches its weights meanwhile."""


class _Plan(NamedTuple):
    """A kernel's text, and its launch: blocks of the grid, shared memory, constants, and roles in pointers' order."""

    text: str
    blocks: int
    shared: int
    constants: list[bytes | tuple[str, int]]
    roles: list[str]


def takes(joined: Joined) -> bool:
    """Whether there is a kernel: products of few rows by our own kernel, and rows of a length that blocks stage."""
    switches = context.current.switches
    if switches.preferred_blas_library != "default" or switches.tuner is not None:
        return False
    return all([_takes_part(joined, part) for part in joined.attributes[0].parts]) and _takes_norm(joined)


def _takes_part(joined: Joined, part: Part) -> bool:
    roles, result = joined.roles, part.kernel.shape
    for weight, bias in zip(part.weights, part.biases):
        out = joined.roles["input"].like(result)
        described = linear_product(roles["input"], roles[weight], roles[bias] if bias else None, out)
        if described is None or not few_rows.takes(described):
            return False
        sides = few_rows.sides_of(described)
        if sides is None or sides.is_transposed:
            return False
    metas = [*part.kernel.loads, *[meta for _, meta in stores_of(part.kernel)]]
    return all([_row_steps(meta, result) is not None for meta in metas])


def _takes_norm(joined: Joined) -> bool:
    norm, roles = joined.attributes[0].norm, joined.roles
    if not norm:
        return True
    input = roles["input"]
    vector, depth = VECTOR_BYTES // input.dtype.itemsize, input.shape[-1]
    is_short = depth <= _MOST_ITEMS * _THREADS * vector and input.nbytes <= _MOST_STAGED
    parameters = [roles[role] for role in ("scale", "shift") if role in roles]
    return is_short and all([one.is_contiguous and not one.offset % vector for one in parameters])


def _row_steps(meta: Meta, shape: Size) -> tuple[int, int] | None:
    """How far rows and columns are apart where an operand has the shape of results; None where rows are unevenly."""
    strides = broadcast_strides(meta.shape, meta.strides, shape)
    dims = [(n, s) for n, s in zip(shape[:-1], strides[:-1], strict=True) if n != 1]
    if any([outer != size * inner for (_, outer), (size, inner) in pairwise(dims)]):
        return None
    return dims[-1][1] if dims else 0, strides[-1]


def _plan(joined: Joined) -> _Plan:
    products, roles = joined.attributes[0], joined.roles
    input = roles["input"]
    vector, depth = VECTOR_BYTES // input.dtype.itemsize, input.shape[-1]
    rows, split = input.numel // depth, few_rows.split_of(_columns(products), depth, vector)
    described = [computations_of(part.kernel) for part in products.parts]
    functions = [function for made, _ in described for function in made]
    scale, shift = [CTYPES[roles[role].dtype] if role in roles else "" for role in ("scale", "shift")]
    text = ProductsText(
        CTYPES[input.dtype], vector, 1 << (rows - 1).bit_length(), split, products.norm.strip("_").partition("_")[0],
        _items(depth, vector) if products.norm else 1, scale, shift,
        library_of([part.kernel for part in products.parts], functions),
        tuple([_part_text(part, made, taken) for part, (made, taken) in zip(products.parts, described)]),
    )  # fmt: skip
    most = int(multiprocessors(joined.device.index or 0) * held_blocks(text) * (1 - _LEFT))
    blocks = _blocks(products, split, most)
    steps = _steps(joined, blocks)
    constants: list[bytes | tuple[str, int]] = [one for _, taken in described for one in taken.constants]
    constants += [("int", rows), struct.pack("=f", products.eps)]
    numbers = [steps[name] for name in steps_of(text)]
    constants.append(struct.pack(f"={len(numbers)}q", *numbers))
    shared = input.numel * input.dtype.itemsize if products.norm else 0
    return _Plan(text_of(text), sum(blocks), shared, constants, _roles_of(products, pointers_of(text)))


def _columns(products: Products) -> int:
    return sum([part.kernel.shape[-1] for part in products.parts])


def _items(depth: int, vector: int) -> int:
    """How many vectors of a row a thread holds: powers of two, so that few texts serve all lengths."""
    return 1 << (-(-depth // (_THREADS * vector)) - 1).bit_length()


def _blocks(products: Products, split: int, most: int) -> list[int]:
    """Blocks of each part: about as many as run at a time, each of which has as many columns as any other."""
    wanted = [-(-part.kernel.shape[-1] * split // WARPS) for part in products.parts]
    each = -(-sum(wanted) // most)
    return [-(-count // each) for count in wanted]


def _part_text(part: Part, functions: Sequence[Function], numbers: Numbers) -> PartText:
    kernel = part.kernel
    stored = stores_of(kernel)
    loads = tuple([
        (CTYPES[meta.dtype], part.weights.index(source) if source in part.weights else -1)
        for meta, source in zip(kernel.loads, part.sources, strict=True)
    ])  # fmt: skip
    stores = tuple([(CTYPES[meta.dtype], register.number) for register, meta in stored])
    applied = functions_of(FusedText(
        tuple(functions), "", tuple([(held, False) for held, _ in loads]), stores, tuple(numbers.declared), "", 1
    ))  # fmt: skip
    kinds = tuple([kind for kind, _ in numbers.declared])
    return PartText(tuple(map(bool, part.biases)), loads, tuple([held for held, _ in stores]), kinds, applied)


def _steps(joined: Joined, blocks: Sequence[int]) -> dict[str, int]:
    """The numbers that the kernel takes, by the names of ``steps_of``."""
    products, roles = joined.attributes[0], joined.roles
    input = roles["input"]
    steps = {"depth": input.shape[-1], "apart": flattened(input).row_step}
    for p, part in enumerate(products.parts):
        shape = part.kernel.shape
        steps |= {f"end {p}": sum(blocks[: p + 1]), f"blocks {p}": blocks[p], f"columns {p}": shape[-1]}
        for j, (weight, bias) in enumerate(zip(part.weights, part.biases)):
            steps[f"w{p}_{j}"] = roles[weight].strides[0]
            if bias:
                steps[f"b{p}_{j}"] = broadcast_strides(roles[bias].shape, roles[bias].strides, shape)[-1]
        named = {f"in{p}_{k}": meta for k, meta in enumerate(part.kernel.loads)}
        named |= {f"out{p}_{k}": meta for k, (_, meta) in enumerate(stores_of(part.kernel))}
        for name, meta in named.items():
            steps[f"{name} row"], steps[f"{name} column"] = _row_steps(meta, shape) or (0, 0)
    return steps


def _roles_of(products: Products, pointers: Sequence[tuple[str, str]]) -> list[str]:
    """The role of each pointer; empty for one of a parameter that is not there."""
    roles = {"x": "input", "scale": "scale", "shift": "shift"}
    for p, part in enumerate(products.parts):
        roles |= {f"w{p}_{j}": role for j, role in enumerate(part.weights)}
        roles |= {f"b{p}_{j}": role for j, role in enumerate(part.biases)}
        roles |= {f"in{p}_{k}": role for k, role in enumerate(part.sources)}
        stored = [*part.outs, *[part.sources[place] for place, _ in part.kernel.stores]]
        roles |= {f"out{p}_{k}": role for k, role in enumerate(stored)}
    return [roles[name] for _, name in pointers]


def prepared(joined: Joined) -> tuple[_Plan, Callable[..., None]]:
    """The plan of a kernel, and its launch on addresses, loaded on the current device."""
    plan = _plan(joined)
    fire = load_kept(plan.text, NAME).prepare(
        plan.blocks, _THREADS, "P" * len(plan.roles), plan.constants, plan.shared, overlaps=True
    )  # fmt: skip
    return plan, fire


def _launch(backend: Backend, joined: Joined) -> tuple[str, Callable[[tuple[Value, ...]], None]]:
    """The text, and what launches it on values for operands and results."""
    plan, fire = prepared(joined)
    metas = [*joined.loads, *joined.news]
    places = {role: (number, byte_offset(meta)) for number, (role, meta) in enumerate(metas)}
    found = [places.get(role) for role in plan.roles]

    def launch(values: tuple[Value, ...]) -> None:
        fire(backend.stream, *[0 if one is None else values[one[0]].storage.block.pointer + one[1] for one in found])

    return plan.text, launch


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernel, and return what allocates the results and starts it."""
    with backend.as_current():
        text, launch = _launch(backend, joined)
    numbers = {role: number for number, (role, _) in enumerate(joined.loads)}
    parts = joined.attributes[0].parts
    stored = [numbers[part.sources[place]] for part in parts for place, _ in part.kernel.stores]
    run = running(backend, [meta for _, meta in joined.news], stored, lambda args, outs: launch((*args, *outs)))
    return Executor(run, f"{joined!r}\n{text}", MODULE_BYTES)


JOINERS[keys.CUDA, PRODUCTS] = Joiner(takes, makes)
