"""A program that a session was told: its rows, the inputs of its last run, and how it is executed.

Knows nothing of how instructions are executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

from server.engine import context
from server.engine.operators import BY_INDEX
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.programs.messages import DefineProgram, RunProgram
from telegrad_protocol.programs.rates import rate_of
from telegrad_protocol.programs.rows import Template

from .compiled import Variant
from .situations import Standing
from .successions import successions_in
from .uploaded import DATA

_ROW_BYTES: Final = 1200
_INPUT_BYTES: Final = 72
"""What the host holds for a row of a program, and for an input."""
_MOST_VARIANTS: Final = 8
"""A program is recorded in so many situations at most."""
_STAYING: Final = 16
"""Where it was, a situation that is met so often takes the place of the one that was met last of all longest ago."""
_FEWEST: Final = 4
"""Programs of fewer instructions are not worth a record."""
_RECORDED: Final = frozenset(
    (messages.Call, messages.Free, messages.Upload, messages.Backward, messages.Gradient, messages.SetGrad,
     messages.DropGrads, messages.SetRequiresGrad, messages.TakePlace)
)  # fmt: skip
_MODES: Final = frozenset(("grad", "inference", "autocast", "autocast_cache"))


class Program:
    """The rows of a program, the inputs of its last run, and how it is executed in situations that came again."""

    __slots__ = (
        "_first", "_fixed", "_free", "_inputs", "_latest", "_moving", "_pick", "_seen", "_sizes", "calls", "has_passes",
        "is_recordable", "last_run", "nbytes", "reasons", "standing", "successions", "template", "tunes", "used",
        "variant_bytes", "variants",
    )  # fmt: skip

    def __init__(self, definition: DefineProgram) -> None:
        rows = definition.rows
        self.template = Template(definition.inputs, rows, definition.constants)
        self.tunes = definition.tunes
        """Whether products are measured before it is captured."""
        self.nbytes = weight_of(definition)
        self.calls = sum([row.__class__ is messages.Call for row in rows])
        self.has_passes = any([isinstance(row, (messages.Backward, messages.Gradient)) for row in rows])
        self.is_recordable = len(rows) >= _FEWEST and all(map(_is_recordable, rows))
        self.used = used_inputs(rows)
        """Positions of inputs that are more than freed."""
        self.successions = successions_in(rows, self.used) if self.is_recordable else ()
        self._pick = itemgetter(*self.used) if len(self.used) > 1 else None
        self._latest: tuple[Any, bytes, Variant] | None = None
        """The situation of the last run that was executed as one, the constants that are fixed, and how it was."""
        self.variants: dict[Any, Variant | None] = {}
        self.reasons: dict[Any, str] = {}
        """Why programs go on as instructions in situations where they do."""
        free = {(number, _free_position(row)) for number, row in enumerate(rows)}
        self._free = [self.template.place(constant) in free for constant in range(len(definition.constants))]
        """Whether a constant may differ between runs that are executed alike."""
        self._fixed: bytes | None = None
        self.variant_bytes = 0
        """What these take of ``nbytes``."""
        self.last_run = 0
        """How many operations the session had executed by then."""
        self.standing = Standing()
        self._seen: dict[Any, int] = {}
        """How often situations were met that are not recorded."""
        self._sizes: dict[Any, int] = {}
        """The bytes that each variant takes of ``variant_bytes``."""
        self._first = 0
        self._inputs = [0] * definition.inputs
        self._moving: set[int] = set()
        """Positions of inputs that are as far from the first id in each run."""

    @property
    def inputs(self) -> int:
        """How many tensors it takes from before it."""
        return len(self._inputs)

    def ids(self, run: RunProgram) -> list[int]:
        """Return the ids of a run, by slot; ProtocolError where it does not fit the program."""
        inputs, distance, count = self._inputs, run.first - self._first, len(self._inputs)
        for position in (*run.moved, *[position for position, _ in run.changed]):
            if not 0 <= position < count:
                raise ProtocolError(f"run program: there is no input number {position}")
        self._moving.symmetric_difference_update(run.moved)
        for position in self._moving:
            inputs[position] += distance
        for position, id in run.changed:
            inputs[position] = id
        self._first = run.first
        if run.constants:
            if not all([self._is_free(constant, value) for constant, value in run.constants]):
                self._fixed = None
            self.template.change(run.constants)
        return self.template.ids(run.first, inputs)

    def values(self, named: Mapping[int, Any], ids: Sequence[int]) -> list[Any]:
        """Return what the inputs name that it does more with than to free them."""
        used = [ids[position] for position in self.used] if self._pick is None else self._pick(ids)
        return [*map(named.get, used)]

    def variant(self, described: Any) -> Variant | None:
        """Return how it is executed in a situation, with the constants as they are now; None where it is not as one."""
        latest = self._latest
        if latest is not None and latest[0] is described and latest[1] is self._fixed:
            return latest[2]
        fixed = self.fixed
        variant = self.variants.get((described, fixed))
        if (described, fixed) in self.variants:  # what ran longest ago is the first
            self.variants[described, fixed] = self.variants.pop((described, fixed))
        if variant is not None and variant.awaited is not None:
            with context.current.below_autocast():
                variant = self.variants[described, fixed] = variant.refined()
        if variant is not None:
            self._latest = (described, fixed, variant) if variant.awaited is None else None
        return variant

    def keep_variant(self, met: Any, variant: Variant | None, nbytes: int) -> int:
        """Keep how it is executed in a situation, which takes so many bytes; return the bytes that are let go of."""
        freed = self._sizes.pop(met, 0)
        while len(self.variants) >= _MOST_VARIANTS and met not in self.variants:
            oldest = next(iter(self.variants))
            del self.variants[oldest]
            self.reasons.pop(oldest, None)
            freed += self._sizes.pop(oldest, 0)
        self._latest = None
        self.variants[met] = variant
        self._sizes[met] = nbytes
        self.variant_bytes += nbytes - freed
        self.nbytes += nbytes - freed
        return freed

    def forget_variants(self) -> int:
        """Let go of how it was executed in all situations; return the bytes that this took."""
        self._latest = None
        self.variants.clear()
        self.reasons.clear()
        self._sizes.clear()
        freed, self.variant_bytes = self.variant_bytes, 0
        self.nbytes -= freed
        return freed

    @property
    def fixed(self) -> bytes:
        """A digest of the constants as they are now, but for those that are given to what is executed as one."""
        if self._fixed is None:
            constants = zip(self.template.constants, self._free, strict=True)
            fixed = [_kind_of(value) if is_free else value for value, is_free in constants]
            self._fixed = blake2b(wire.encoder.encode(fixed), digest_size=16).digest()
        return self._fixed

    def _is_free(self, constant: int, value: Any) -> bool:
        """Return whether a constant that changes is given to what is executed as one."""
        place = self.template.place(constant)
        return self._free[constant] and _kind_of(value) == _kind_of(self.template.argument(*place))

    def is_worth_recording(self, met: Any) -> bool:
        """Return whether a situation is met the second time; later where another one has to go for it."""
        if met in self.variants:
            return False
        count = self._seen.pop(met, 0) + 1
        if count >= (2 if len(self.variants) < _MOST_VARIANTS else _STAYING):
            return True
        if len(self._seen) >= _MOST_VARIANTS:
            self._seen.clear()
        self._seen[met] = count
        return False


def _free_position(row: Any) -> int | None:
    """Return the position of the constant of a row that is given to what is executed as one, if it has one."""
    if isinstance(row, messages.Upload):
        return DATA
    return rate_of(BY_INDEX[row.op].op) if isinstance(row, messages.Call) else None


def _kind_of(value: Any) -> Any:
    """Return the same for constants that can take each other's place, as bytes and floats can; others are returned."""
    if isinstance(value, bytes):
        return ["bytes", len(value)]
    only = value[0] if isinstance(value, list) and len(value) == 1 else value
    return "float" if isinstance(only, float) else value


def _is_recordable(row: Any) -> bool:
    if isinstance(row, messages.TakePlace) and row.former < 0:
        return False
    return row.name in _MODES if isinstance(row, messages.Mode) else type(row) in _RECORDED


def used_inputs(rows: Sequence[Any]) -> list[int]:
    """Return the positions of inputs that rows do more with than to free them."""
    used: set[int] = set()
    for row in rows:
        if row.__class__ is messages.Call:
            used.update(
                [s for arg in row.args for s in (arg if isinstance(arg, list) else [arg]) if s.__class__ is int]
            )
        elif row.__class__ is messages.Backward:
            used.update([*row.roots, *[g for g in row.gradients if g is not None], *[leaf for leaf, _ in row.leaves]])
        elif row.__class__ is messages.Gradient:
            used.update([*row.roots, *[g for g in row.gradients if g is not None], *row.inputs])
        elif row.__class__ is messages.DropGrads:
            used.update(row.ids)
        elif row.__class__ is messages.TakePlace:
            used.update([row.id, row.former])
        elif row.__class__ in (messages.SetGrad, messages.SetRequiresGrad):
            used.update([s for s in (row.id, getattr(row, "grad", None)) if s is not None])
    return sorted([slot for slot in used if slot >= 0])


def weight_of(definition: DefineProgram) -> int:
    """Return how many bytes the host holds for a program."""
    return len(definition.rows) * _ROW_BYTES + definition.inputs * _INPUT_BYTES
