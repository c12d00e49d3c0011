"""Gradients of the weights and biases of several layers in one launch, where each alone leaves most of a GPU idle.

Only in float32: tensor cores make products of half precision, and libraries those that fill a device.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from server.engine import context, keys
from server.engine.cuda.gemm.layout import flattened
from server.engine.cuda.pointwise.fused import running
from server.engine.cuda.rows.rowwise import byte_offset
from server.engine.cuda.runtime.kept_modules import MODULE_BYTES, load_kept
from server.engine.cuda.texts import tensor
from server.engine.programs.fused import JOINERS, Executor, Joiner
from server.engine.programs.joined import WEIGHTS, Joined
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

from .weight_gradients_text import MOST_PARTS, NAME, THREADS, TILE, text_of

_ROLES: Final = ("grad", "input", "weight", "bias")
"""What each part reads and makes, in the order of a kernel's addresses."""
_VECTORS: Final = (4, 2, 1)
_MOST_ROWS: Final = 2048
"""A block goes through all rows: with more, libraries that share rows among blocks are faster."""
_MOST_TILES: Final = 256
"""Tiles of one result: with so many it fills a device alone."""
_MOST_WORK: Final = 1 << 18
"""Rows times tiles of one result: larger products are what libraries are better at."""
_MOST_HELD: Final = 32 << 20
"""Bytes of what is read, which is held until the launch."""


class _Part(NamedTuple):
    """One layer: rows, the sizes of the result, and how far rows are apart."""

    rows: int
    n: int
    k: int
    grad_step: int
    input_step: int

    @property
    def across(self) -> int:
        return -(-self.k // TILE[1])

    @property
    def tiles(self) -> int:
        return -(-self.n // TILE[0]) * self.across


def count_of(joined: Joined) -> int:
    """How many layers there are."""
    return sum([role.startswith("grad") for role, _ in joined.loads])


def takes(joined: Joined) -> bool:
    """Whether there is a kernel: few small products in float32, of rows that are read in vectors of one size."""
    switches = context.current.switches
    if switches.preferred_blas_library != "default" or switches.tuner is not None or switches.allow_tf32:
        return False
    count, metas = count_of(joined), [meta for _, meta in joined.loads]
    if count > MOST_PARTS or any([meta.dtype is not dtypes.float32 or not meta.numel for meta in metas]):
        return False
    if sum([meta.nbytes for meta in metas]) > _MOST_HELD or not all([flattened(meta).is_by_rows for meta in metas]):
        return False
    parts = [_part(joined, number) for number in range(count)]
    return all(map(_is_small, parts)) and len({_vector(joined, number) for number in range(count)}) == 1


def _is_small(part: _Part) -> bool:
    is_short = part.rows <= _MOST_ROWS and part.tiles <= _MOST_TILES
    return is_short and part.rows * part.tiles <= _MOST_WORK


def _part(joined: Joined, number: int) -> _Part:
    grad, input = [flattened(joined.roles[f"{role} {number}"]) for role in _ROLES[:2]]
    return _Part(grad.rows, grad.columns, input.columns, grad.row_step, input.row_step)


def _vector(joined: Joined, number: int) -> int:
    """How many elements are read at once: of rows that begin where, and are as long as, such vectors do."""
    part, metas = _part(joined, number), [joined.roles[f"{role} {number}"] for role in _ROLES[:2]]
    common = math.gcd(part.n, part.k, part.grad_step, part.input_step, *[meta.offset for meta in metas])
    return next(vector for vector in _VECTORS if not common % vector)


def prepared(joined: Joined) -> tuple[str, Callable[..., None]]:
    """The text, and the launch on addresses, loaded on the current device."""
    numbers, end = b"", 0
    for number in range(count_of(joined)):
        part = _part(joined, number)
        end += part.tiles
        numbers += struct.pack("=7I", end, part.rows, part.n, part.k, part.across, part.grad_step, part.input_step)
    numbers += bytes(struct.calcsize("=7I") * MOST_PARTS - len(numbers))
    text = text_of(_vector(joined, 0))
    return text, load_kept(text, NAME).prepare(end, THREADS, "", [numbers], table=len(_ROLES) * MOST_PARTS)


def makes(backend: Backend, joined: Joined) -> Executor:
    """Load the kernel, and return what allocates the results and starts it."""
    with backend.as_current():
        text, fire = prepared(joined)
    places = {role: (place, byte_offset(meta)) for place, (role, meta) in enumerate((*joined.loads, *joined.news))}
    found = [places.get(f"{role} {number}") for number in range(MOST_PARTS) for role in _ROLES]

    def launch(args: tuple[Value, ...], outs: tuple[Value, ...]) -> None:
        values = (*args, *outs)
        fire(backend.stream, *[0 if one is None else values[one[0]].storage.block.pointer + one[1] for one in found])

    run = running(backend, [meta for _, meta in joined.news], (), launch)
    return Executor(run, f"{joined!r}\n{text}", MODULE_BYTES)


def check_loads(dtype: DType) -> None:
    """Load the kernel for rows of each kind; usual ones, too, since there are no others."""
    for vector in _VECTORS if dtype is dtypes.float32 else ():
        grad, input = tensor(dtype, 8, 16 * vector), tensor(dtype, 8, 8 + vector)
        made: tuple[tuple[str, Meta], ...] = (("weight 0", tensor(dtype, 16 * vector, 8 + vector)),)
        prepared(Joined(WEIGHTS, "_linear_backward", (), (("grad 0", grad), ("input 0", input)), made))


JOINERS[keys.CUDA, WEIGHTS] = Joiner(takes, makes)
