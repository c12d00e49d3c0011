"""Casts of many tensors as one kernel: those of weights before they are used, those of gradients after they were made.

They are joined as far as nothing has to happen between them, and as memory that is held meanwhile allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from server.engine.array_library.dtypes import HALVES
from server.engine.programs.analysis import Analysis
from server.engine.programs.fused import is_cast, joins
from server.engine.programs.graph import Slot, Step
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import CASTS, Joined
from server.engine.programs.lowering import Lowered
from server.engine.programs.temporaries import peak_bytes
from telegrad_protocol import dtypes
from telegrad_protocol.layout import is_dense
from telegrad_protocol.meta import Meta

_MOST: Final = 512
"""Casts in one kernel."""
_MORE: Final = 64
"""Temporary values may take so large a part more of their bytes, one of so many, than without."""
_TYPES: Final = (*HALVES, dtypes.float32, dtypes.float64)


def join_casts(grouping: Grouping, outputs: Sequence[Slot]) -> Grouping:
    """Join casts between the same types. Bytes of temporary values are compared with those before, and hardly grow."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for position, source, made in _casts(grouping):
        alike.setdefault((source.dtype, made.dtype, made.device), []).append(position)
    if not any([len(positions) > 1 for positions in alike.values()]):
        return grouping
    peak = _peak(grouping, outputs)
    for positions in alike.values():
        grouping = _joined(grouping, positions, outputs, peak + peak // _MORE)
    return grouping


def _casts(grouping: Grouping) -> Iterator[tuple[int, Meta, Meta]]:
    """Casts that are kernels of their own, with what they read and make: dense, and in the same order in memory."""
    for position, (group, step) in enumerate(zip(grouping.by_step, grouping.steps)):
        if group.candidate is None or group.positions != [position] or step.operator.op.name != "_to_copy":
            continue
        source, made = grouping.analysis.known[step.args[0]], grouping.analysis.known[step.outs[0]]
        if isinstance(source, Meta) and isinstance(made, Meta) and is_cast(group.candidate.compute):
            is_alike = source.strides == made.strides and is_dense(source.shape, source.strides)
            if is_alike and source.dtype in _TYPES and made.dtype in _TYPES:
                yield position, source, made


def _joined(grouping: Grouping, positions: Sequence[int], outputs: Sequence[Slot], most: int) -> Grouping:
    """Join as many of the casts as can be one kernel with the first, then the others; fewer where memory is short."""
    waiting = [positions]
    while waiting:
        casts = waiting.pop()
        chosen = _independent(grouping, casts[: 4 * _MOST])[:_MOST]
        if len(chosen) < 2:
            waiting += [casts[1:]] if len(casts) > 2 else []
            continue
        tried = grouping.copy()
        group = tried.by_step[chosen[0]]
        for position in chosen[1:]:
            tried.absorb(group, tried.by_step[position])
        if _is_taken(tried, group.positions) and _peak(tried, outputs) <= most:
            group.kind, grouping = CASTS, tried
            waiting.append([p for p in casts if p not in group.positions])
        else:
            middle = len(casts) // 2
            waiting += [casts[middle:], casts[:middle]]
    return grouping


def _independent(grouping: Grouping, positions: Sequence[int]) -> list[int]:
    """The first of some steps, and those of which none has to come after another of them."""
    chosen: list[int] = []
    members = after = 0
    for position in positions:
        group = grouping.by_step[position]
        if not (group.after & members or after & group.members):
            chosen.append(position)
            members |= group.members
            after |= group.after
    return chosen


def _is_taken(grouping: Grouping, positions: Sequence[int]) -> bool:
    kernel = lowered_casts(positions, grouping.steps, grouping.analysis).kernel
    return isinstance(kernel, Joined) and joins(grouping.keys[kernel.device], kernel)


def _peak(grouping: Grouping, outputs: Sequence[Slot]) -> int:
    return peak_bytes([group.positions for group in grouping.ordered()], grouping.steps, grouping.analysis, outputs)


def lowered_casts(positions: Sequence[int], steps: Sequence[Step], analysis: Analysis) -> Lowered:
    """Describe the kernel of several casts."""
    loads = [steps[p].args[0] for p in positions]
    news = [steps[p].outs[0] for p in positions]
    described = Joined(CASTS, "_to_copy", (), _numbered(loads, analysis), _numbered(news, analysis))
    roots = analysis.roots
    return Lowered(described, tuple([roots[slot] for slot in loads]), tuple([roots[slot] for slot in news]))


def _numbered(slots: Sequence[Slot], analysis: Analysis) -> tuple[tuple[str, Meta], ...]:
    metas = enumerate([analysis.known[slot] for slot in slots])
    return tuple([(str(number), meta) for number, meta in metas if isinstance(meta, Meta)])
