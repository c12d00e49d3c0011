"""What is known of calls that come again with operands of other sizes: which ones these are, and what was recorded.

A cache that grows has another size whenever the calls of a loop come, and never the same again soon. Two such runs are
written down and compared, and from then on these calls are executed as one, whatever the sizes are. Knows situations,
and nothing of how calls are executed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from server.engine.programs.graph import Slot
from server.engine.programs.recorded.elastic import RecordedRun
from telegrad_protocol.meta import Meta

from .compiled import Variant

UNKNOWN: Final = object()
"""Stands for a variant, where it is not known whether there is one."""
_MOST_DIFFERENCES: Final = 2
"""So often runs may turn out to do something else, not only the same on other sizes."""


class Elasticity:
    """The situations of one stretch that differ in metas of some inputs; ``variants`` are by what is left of them."""

    __slots__ = ("_differences", "_last", "_places", "_runs", "variants")

    def __init__(self) -> None:
        self.variants: dict[Any, Variant | None] = {}
        self._last: Any = None
        self._places: frozenset[int] = frozenset()
        """Inputs that came with several metas."""
        self._runs: dict[Any, RecordedRun] = {}
        self._differences = 0

    def variant(self, met: Any) -> Variant | object | None:
        """Return what a situation is executed by: None for call by call, ``UNKNOWN`` where that is not known."""
        return self.variants.get(self.key(met), UNKNOWN) if self.variants else UNKNOWN

    def key(self, met: Any) -> Any:
        """Return a situation without the sizes of inputs that came with several: of these only types and dimensions.

        Operations do something else in other types, and so do composites that have other numbers of dimensions.
        """
        modes, described = met
        left = list(described)
        for place in self._places:
            meta = left[place]
            if meta.__class__ is not Meta:
                return met
            left[place] = meta.dtype, meta.ndim
        return modes, tuple(left)

    def is_worth_recording(self, met: Any) -> bool:
        """Return whether a situation differs from the last one in inputs that are known to, and in nothing else."""
        last, self._last = self._last, met
        if last is None or last[0] != met[0]:
            return False
        pairs = zip(last[1], met[1], strict=True)
        differing = frozenset([place for place, (here, there) in enumerate(pairs) if here != there])
        if not all([one[1][place].__class__ is Meta for one in (last, met) for place in differing]):
            return False
        if not differing <= self._places:
            self._places |= differing
            self.variants.clear()
            self._runs.clear()
            return False
        return bool(differing)

    def compare(self, key: Any, run: RecordedRun | None) -> Collection[Slot] | None:
        """Return the values whose sizes may be any, compared with an earlier run; None where there is none like it.

        All inputs that came with several metas are among them, also those that had the same ones in both runs.
        """
        earlier = self._runs.pop(key, None)
        differing = None if run is None or earlier is None else run.differing(earlier)
        if run is not None and differing is not None:
            return differing.union([run.inputs[place] for place in self._places])
        self._differences += earlier is not None
        if run is None or self._differences >= _MOST_DIFFERENCES:
            self.variants[key] = None
        else:
            self._runs[key] = run
        return None

    def refuse(self, variant: Variant) -> None:
        """Note that more depends on sizes than two runs have told; after several times execute it call by call."""
        self._differences += 1
        if self._differences >= _MOST_DIFFERENCES:
            self.variants = {key: None if one is variant else one for key, one in self.variants.items()}
