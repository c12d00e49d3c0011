"""What a session's programs have become, told in words: situations, kernels before and after fusion, generated text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from server.engine import keys
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol.meta import Meta
from telegrad_protocol.programs.reports import ProgramReports

from .compiled import Variant
from .sequences import Program


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
    (modes, inputs, memory), constants = met
    for number, described in enumerate(inputs):
        yield f"input {number} is {_input(described)}"
    for shared in _shared(memory):
        yield f"inputs {', '.join(map(str, shared))} share memory"
    yield from _modes(*modes)
    yield f"constants have the digest {constants.hex()[:8]}"


def _input(described: Any) -> str:
    meta, *autograd = described if described.__class__ is tuple else (described,)
    text = f"{meta} on {meta.device}"
    if meta is not Meta.of(meta.shape, meta.dtype, meta.device):
        text += f", strides {list(meta.strides)}, offset {meta.offset}"
    if not autograd:
        return text
    requires_grad, has_history, gradient = autograd
    for holds, what in ((requires_grad, "requires a gradient"), (has_history, "has a history")):
        text += f", {what}" if holds else ""
    return text if gradient is None else f"{text}, has a gradient of {gradient}"


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
