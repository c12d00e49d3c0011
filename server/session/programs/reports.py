"""What a session's programs have become, told in words: situations, kernels before and after fusion, generated text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from server.engine import keys
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol.meta import Meta
from telegrad_protocol.programs.reports import ProgramReports

from .compiled import Variant
from .known import Program
from .situations import Situation


@answers(ProgramReports)
def _program_reports(state: SessionState, query: ProgramReports) -> list[dict[str, Any] | None]:
    programs: list[Program | None] = [state.programs.get(number) for number in query.programs]
    return [None if program is None else _report(program, query.with_texts) for program in programs]


def _report(program: Program, with_texts: bool) -> dict[str, Any]:
    specialisations = [
        {"situation": list(_lines_of(met)), **_figures(variant, program.reasons.get(met, ""), with_texts)}
        for met, variant in program.variants.items()
    ]
    return {"instructions": len(program.template), "specialisations": specialisations}


def _figures(variant: Variant | None, reason: str, with_texts: bool) -> dict[str, Any]:
    if variant is None:
        return {"reason": reason or "it cannot be optimised"}
    told = variant.description
    return {
        "reason": "", "steps": told.steps, "kernels_before": told.kernels_before, "kernels_after": told.kernels_after,
        "bytes_before": told.temporary_bytes_before, "bytes_after": told.temporary_bytes_after,
        "fused": [list(names) for names in told.fused], "text": told.text if with_texts else "",
    }  # fmt: skip


def _lines_of(met: Any) -> Iterator[str]:
    """Describe a situation and the constants that are fixed in it."""
    found, constants = met
    for number, text in enumerate(_inputs(found)):
        yield f"input {number} is {text}"
    for shared in _shared(found.memory):
        yield f"inputs {', '.join(map(str, shared))} share memory"
    yield from _modes(*found.modes)
    yield f"constants have the digest {constants.hex()[:8]}"


def _inputs(found: Situation) -> Iterator[str]:
    """Describe what a program was given."""
    known = zip_longest(found.needs, found.histories, found.gradients)
    for number, meta in enumerate(found.metas):
        is_tracked = number < len(found.tracked) and found.tracked[number]
        yield _laid_out(meta) + (_history(*next(known)) if is_tracked else "")


def _laid_out(meta: Meta) -> str:
    text = f"{meta} on {meta.device}"
    if meta is Meta.of(meta.shape, meta.dtype, meta.device):
        return text
    return f"{text}, strides {list(meta.strides)}, offset {meta.offset}"


def _history(requires_grad: int, has_history: int | None, gradient: Meta | None) -> str:
    needs, made = ", requires a gradient" if requires_grad else "", ", has a history" if has_history else ""
    return needs + made + ("" if gradient is None else f", has a gradient of {gradient}")


def _shared(memory: Sequence[int]) -> list[list[int]]:
    """Return the numbers of inputs that share memory, group by group."""
    groups: dict[int, list[int]] = {}
    for number, group in enumerate(memory):
        groups.setdefault(group, []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _modes(
    excluded: int, included: int, inference: bool, autocast: Any, switches: Any, cudnn: Any, default: Any
) -> Iterator[str]:
    yield f"gradients are {'not ' if excluded & keys.AUTOGRAD or inference else ''}recorded"
    if inference:
        yield "inference mode is on"
    if autocast is not None:
        yield f"autocast is on: {', '.join([f'{kind} in {dtype.name}' for kind, dtype in autocast.dtypes])}"
    yield f"the default dtype is {default.name}"
    yield f"switches have the digest {hash((switches, cudnn)) & 0xFFFFFFFF:08x}"
