"""What the server has made of programs: asked for, and told by the logs of compiled functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from traceback import FrameSummary, format_list
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from telegrad_protocol import messages
from telegrad_protocol.ops import TABLE

from . import logs

NAMES = {op.index: op.public for op in TABLE.values()}
"""Public names of operations by their numbers."""


class Specialisation(NamedTuple):
    """A program in one situation. ``reason`` says why it goes on as instructions, empty where it is executed as one.

    Kernels and bytes of temporary values are counted without and with fusion; ``fused`` has the names of operations in
    each fused kernel, ``text`` the steps and what was generated for them.
    """

    situation: list[str]
    reason: str = ""
    steps: int = 0
    kernels_before: int = 0
    kernels_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    fused: Sequence[Sequence[str]] = ()
    text: str = ""

    def lines(self) -> Iterator[str]:
        """Yield what it is, without the situation and the text."""
        if self.reason:
            yield f"executed as instructions: {self.reason}"
            return
        yield f"{self.steps} steps, {self.kernels_before} kernels before fusion, {self.kernels_after} after"
        yield f"temporary bytes {self.bytes_before} before, {self.bytes_after} after"
        for names in self.fused:
            yield f"fused: {', '.join(names)}"


class ProgramReport(NamedTuple):
    """A program of the server's by its number, its instructions, and the situations that it was recorded in."""

    number: int
    instructions: int
    specialisations: list[Specialisation]


def asked(session: Any, numbers: Sequence[int], with_texts: bool = True) -> list[ProgramReport]:
    """Ask what these programs have become; those that are no more are left out. One round trip, if there are any."""
    if not numbers:
        return []
    answers = session.query("program_reports", list(numbers), with_texts)
    return [
        ProgramReport(number, told["instructions"], [Specialisation(**one) for one in told["specialisations"]])
        for number, told in zip(numbers, answers, strict=True)
        if told is not None
    ]


class Part(Protocol):
    """What is known of a part of a call; see ``regions.ObservedPart``."""

    @property
    def calls(self) -> list[messages.Call]:
        """The calls of operations that the part has queued."""

    @property
    def programs(self) -> list[int]:
        """The numbers of the programs that it was sent as."""


class Teller:
    """Tells the logs what calls of one function have made the server do, in comparison with its earlier calls."""

    def __init__(self, function: Any) -> None:
        code = getattr(function, "__code__", None) or getattr(getattr(function, "forward", None), "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
        self._name = name if code is None else f"{name} in {code.co_filename}:{code.co_firstlineno}"
        self._parts: dict[tuple[int, int], list[str]] = {}
        """The operations of parts, by their place in the call and the program's place in the part."""
        self._situations: dict[tuple[int, int], list[list[str]]] = {}
        """What was told of programs, by the session's identity and their numbers."""

    def tell(self, session: Any, parts: Sequence[Part]) -> None:
        """Tell of a call that has ended. Asks the server, if the call has run programs."""
        for number, part in enumerate(parts):
            for position, program in enumerate(part.programs):
                self._tell_program(
                    session, (number, position), program, [NAMES.get(call.op, "?") for call in part.calls]
                )
        programs = dict.fromkeys([program for part in parts for program in part.programs])
        for report in asked(session, list(programs)):
            self._tell_specialisations(session, report)

    def _tell_program(self, session: Any, place: tuple[int, int], number: int, names: list[str]) -> None:
        if (id(session), number) in self._situations:
            return
        self._situations[id(session), number] = []
        before = self._parts.get(place)
        if before is not None and "recompiles" in logs.enabled:
            reason = _difference(before, names)
            logs.tell("recompiles", f"New program {number} of function {self._name}\n    since {reason}")
        self._parts[place] = names
        if "graph_code" in logs.enabled:
            lines = "\n".join([f"    {name}" for name in names])
            logs.tell("graph_code", f"Program {number} of function {self._name}\n{lines}")

    def _tell_specialisations(self, session: Any, report: ProgramReport) -> None:
        known = self._situations[id(session), report.number]
        for one in report.specialisations[len(known) :]:
            self._tell_specialisation(f"program {report.number} of function {self._name}", one, known)
            known.append(one.situation)

    def _tell_specialisation(self, program: str, one: Specialisation, known: list[list[str]]) -> None:
        new = min(([line for line in one.situation if line not in other] for other in known), key=len, default=None)
        indented = {"guards": one.situation, "fusion": [] if one.reason else list(one.lines()), "recompiles": new}
        headings = {"guards": "Situation of", "fusion": "Fusion of", "recompiles": "New specialisation of"}
        for artifact, lines in indented.items():
            if artifact in logs.enabled and lines:
                text = "\n".join([f"    - {line}" for line in lines])
                logs.tell(artifact, f"{headings[artifact]} {program}\n{text}")
        if "perf_hints" in logs.enabled and one.reason:
            logs.tell("perf_hints", f"Executed as instructions: {program}\n    since {one.reason}")
        if "output_code" in logs.enabled and not one.reason:
            logs.tell("output_code", f"Output code: {program}\n{one.text}")


def _difference(before: list[str], names: list[str]) -> str:
    """Say in what two sequences of operations differ."""
    for number, (old, new) in enumerate(zip(before, names)):
        if old != new:
            return f"operation {number} is {new}, and was {old}"
    if len(before) != len(names):
        return f"it has {len(names)} operations, and had {len(before)}"
    return "the same operations take or free other tensors, or run under other modes"


def tell_break(reason: str, stack: list[FrameSummary]) -> None:
    """Tell of a graph break, once for each line, with the lines of the program that lead to it, outermost first."""
    if stack and (stack[-1].filename, stack[-1].lineno) in _told_breaks:
        return
    _told_breaks.update([(line.filename, line.lineno) for line in stack[-1:]])
    where = f" at {stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    lines = "".join(format_list(stack))
    text = f"Graph break in user code{where}\nGraph Break Reason: {reason}\nUser code traceback:\n{lines}"
    logs.tell("graph_breaks", text)


def forget() -> None:
    """Forget what was told, so that programs that come again are told of again."""
    _told_breaks.clear()
    _tellers.clear()


_told_breaks: Final[set[tuple[str, int | None]]] = set()
_tellers: Final[WeakKeyDictionary[Any, Teller]] = WeakKeyDictionary()


def teller_of(function: Any) -> Teller:
    """Return what tells of a function's calls; of a method it is one for all objects."""
    function = getattr(function, "__func__", function)
    try:
        return _tellers.setdefault(function, Teller(function))
    except TypeError:  # an object without weak references, or that cannot be a key
        return Teller(function)
