"""Graph breaks: where a compiled function waits for the server, so that what it queues is several programs."""

from __future__ import annotations

from traceback import FrameSummary
from typing import Any, Final, NamedTuple

from telegrad_protocol import messages
from telegrad_protocol.errors import NotSupportedError

_OWN_QUESTIONS: Final = frozenset(("derivation", "expansion", "composites"))
"""What telegrad asks about operations, once; the program does not wait for tensors there."""
_REASONS: Final[dict[type, str]] = {
    messages.Read: "the elements of a tensor are read",
    messages.Describe: "the shape of a result depends on the elements of a tensor, or a gradient is to have a graph",
    messages.Upload: "a large array is sent to the server",
}
_QUERIES: Final = {
    "computed": "it is asked which gradients a pass has computed",
    "data_ptr": "it is asked where a tensor lies",
    "synchronize": "the server is waited for",
}


class GraphBreak(NamedTuple):
    """A graph break: why, and at which line of the program."""

    reason: str
    line: FrameSummary | None

    @property
    def graph_break(self) -> bool:
        """It is one, in the words of PyTorch, whose reasons may also be why a graph was compiled."""
        return True

    @property
    def user_stack(self) -> list[FrameSummary]:
        """The line in a list, as PyTorch has a stack."""
        return [] if self.line is None else [self.line]


class TorchDynamoException(RuntimeError):
    """The base of what ``torch._dynamo`` raises."""


class InvalidBackend(TorchDynamoException):
    """``compile`` was given a name that stands for no backend."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends.")


class Unsupported(NotSupportedError, TorchDynamoException):
    """A function that is compiled with ``fullgraph=True``, or calls ``error_on_graph_break``, has a graph break.

    The message begins with PyTorch's ``heading`` for its kind, where it has one.
    """

    def __init__(self, reason: str, line: FrameSummary | None, heading: str = "") -> None:
        where = "" if line is None else f" at {line.filename}:{line.lineno} in {line.name}"
        first = f"{heading}\n" if heading else ""
        super().__init__(
            f"{first}compile: graph break{where}: {reason}; with fullgraph=True, and in error_on_graph_break(True), "
            "that is an error: keep the value on the device (torch.where, torch.cond), read it after the compiled "
            "function, or leave that out"
        )


def reason_of(instruction: Any) -> str:
    """Return why an instruction that is sent at once is a break; empty for what telegrad asks for itself."""
    if isinstance(instruction, messages.Query):
        if instruction.what in _OWN_QUESTIONS:
            return ""
        return _QUERIES.get(instruction.what) or f"the server is asked for {instruction.what}"
    return _REASONS.get(type(instruction), "the server's answer is waited for")
