"""What PTX text tells of its kernels: their parameters, and which of them are addresses that the kernel writes to.

Addresses are followed through registers: whatever an instruction computes from a parameter may be an address in its
memory. Where that cannot be told, as with a call or an address that was read from memory, every parameter counts as
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_ENTRY: Final = re.compile(r"\.entry\s+([\w$.]+)\s*\(([^)]*)\)[^{;]*\{")
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s*)?)?([\w$.]+)"
    r"(?:\[(\d+)\])?"
)
_STATEMENT: Final = re.compile(r"(?:@!?%?[\w$]+\s+)?([a-z][\w.:]*)\s+([^;]*)$", re.DOTALL)
_REGISTER: Final = re.compile(r"%[A-Za-z_][\w$]*")
_NAME: Final = re.compile(r"(?<![%.\w$])[A-Za-z_$][\w$.]*")
_OWN: Final = -1
"""Stands, among the places of parameters, for a variable of the module or of the kernel itself."""
_SIZES: Final = {"8": 1, "16": 2, "32": 4, "64": 8}
_LOADS: Final = ("ld.", "ldu.", "ldmatrix", "atom.", "tex.")
_WITHOUT_RESULT: Final = frozenset(
    ("st", "red", "bra", "ret", "bar", "barrier", "cp", "stmatrix", "prefetch", "mbarrier", "call", "fence", "membar")
)
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NO_STATEMENT: Final = re.compile(r"^[ \t]*(?:\.loc\b[^\n]*|[\w$]+:|[{}])", re.MULTILINE)
"""Places in source, labels and braces: no semicolon stands between them and the statement that follows."""
_NOT_MEMORY: Final = (".shared", ".local", ".const", ".param", ".shared::cta", ".shared::cluster")


class Parameter(NamedTuple):
    """A parameter of a kernel: its type as PTX writes it, such as ``u64`` or ``f32``, and its size in bytes."""

    type: str
    nbytes: int


class Entry(NamedTuple):
    """A kernel: its parameters, and the places of those it writes to; None where it may write to any."""

    parameters: tuple[Parameter, ...]
    written: frozenset[int] | None


def entries(text: str) -> dict[str, Entry]:
    """Return the kernels of a PTX text by name."""
    text = _COMMENT.sub(" ", text)
    made = {}
    for match in _ENTRY.finditer(text):
        names, parameters = [], []
        for kind, name, count in _PARAMETER.findall(match[2]):
            names.append(name)
            parameters.append(Parameter(kind, _SIZES[re.sub(r"\D", "", kind)] * int(count or 1)))
        body = text[match.end() : _end_of_body(text, match.end())]
        made[match[1]] = Entry(tuple(parameters), _written(body, names))
    return made


def _end_of_body(text: str, start: int) -> int:
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    return len(text)


class _Step(NamedTuple):
    """An instruction: its name, the registers that it sets, and its operands as they are written."""

    name: str
    results: list[str]
    operands: list[str]


def _written(body: str, names: list[str]) -> frozenset[int] | None:
    """Return the places of the parameters that a kernel writes to; None where it may write to any."""
    steps = list(_steps(body))
    if any(step.name.split(".")[0] == "call" and not _is_harmless(step) for step in steps):
        return None
    places = {name: place for place, name in enumerate(names)}
    origins = _origins(steps, places)
    written: set[int] = set()
    for step in steps:
        for address in _addresses_written(step):
            origin = _origin(address, origins, places)
            if not origin:
                return None
            written |= origin
    return frozenset(written - {_OWN})


def _is_harmless(call: _Step) -> bool:
    """Return whether a call is one of a function that writes to nothing that a parameter shows."""
    return any(operand in ("vprintf", "__assertfail") for operand in call.operands)


def _steps(body: str) -> Iterator[_Step]:
    for statement in _NO_STATEMENT.sub(" ", body).split(";"):
        match = _STATEMENT.match(statement.strip())
        if match is None or match[1].startswith("."):
            continue
        operands = _split(match[2])
        has_result = bool(operands) and match[1].split(".")[0] not in _WITHOUT_RESULT
        results = _REGISTER.findall(operands[0]) if has_result else []
        yield _Step(match[1], results, operands)


def _split(operands: str) -> list[str]:
    """Return the operands of an instruction; a list in brackets or braces is one."""
    return [part.strip() for part in re.findall(r"(?:\[[^]]*\]|\{[^}]*\}|[^,\[\]{}])+", operands) if part.strip()]


def _origins(steps: list[_Step], places: dict[str, int]) -> dict[str, set[int]]:
    """Return the parameters that each register may have been computed from."""
    origins: dict[str, set[int]] = {}
    has_changed = True
    while has_changed:
        has_changed = False
        for step in steps:
            if not step.results:
                continue
            is_load = step.name.startswith(_LOADS) and not step.name.startswith("ld.param")
            origin = set() if is_load else set().union(*(_origin(o, origins, places) for o in step.operands[1:]))
            for register in step.results:
                known = origins.setdefault(register, set())
                if not origin <= known:
                    known |= origin
                    has_changed = True
    return origins


def _origin(operand: str, origins: dict[str, set[int]], places: dict[str, int]) -> set[int]:
    """Return the parameters that what stands in an operand was computed from."""
    origin: set[int] = set()
    for register in _REGISTER.findall(operand):
        origin |= origins.get(register, set())
    origin |= {places.get(word, _OWN) for word in _NAME.findall(operand)}
    return origin


def _addresses_written(step: _Step) -> list[str]:
    """Return the operands that are addresses in the device's memory which an instruction writes to."""
    head = step.name.split(".")[0]
    if head in ("st", "red"):
        return [] if any(space in step.name for space in _NOT_MEMORY) else _in_brackets(step.operands[:1])
    if head == "atom":
        return [] if any(space in step.name for space in _NOT_MEMORY) else _in_brackets(step.operands[1:2])
    if head == "cp" and ".global" in step.name.partition(".shared")[0]:
        return _in_brackets(step.operands[:1])  # a bulk copy whose target, named first, is global
    return []


def _in_brackets(operands: list[str]) -> list[str]:
    return [operand for operand in operands if operand.startswith("[")]
