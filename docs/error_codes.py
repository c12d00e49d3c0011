"""The table of error codes: meanings come from the classes, statuses from the gateway, and what to do stands here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from server.gateway.problems import status_of
from telegrad_protocol.errors import BY_CODE, TelegradError

Table = Callable[[Sequence[str], Iterator[Sequence[str]]], str]

WHAT_TO_DO: Final = {
    "TelegradError": "the base of all others, which is not raised itself: catch it to catch them all",
    "ShapeError": "compare the operands that the message names; over HTTP `operands` has them as `float32[2,3]`",
    "DTypeError": "convert the operand to a type that the message names",
    "DeviceError": "move the operands to one device; `GET /v1/devices` lists what there is",
    "DimensionError": "count dimensions from 0, or from -1 backwards; the message says how many there are",
    "IndexOutOfRangeError": "check the indices against the size; `site` is the line that used them",
    "ArgumentError": "read the detail, and `errors` for where in a body the mistake is",
    "ArgumentTypeError": "compare the call with the signature in [operations.md](operations.md)",
    "LinearAlgebraError": "check the matrix: it is singular, not positive definite, or has NaN",
    "AutogradError": "keep the graph with `retain_graph=True`, or leave the values alone that backward needs",
    "InplaceError": "use the operation that makes a new tensor, or work under `no_grad()`",
    "OutOfMemoryError": "free tensors, use smaller batches; `/memory_summary` tells who holds what",
    "LimitExceededError": "make the work smaller, or have the operator raise the limit that the message names",
    "StateDictError": "compare the names and shapes that the message lists",
    "OperatorError": "compare the definition or the call with the operator's schema",
    "NotComputedError": "look for the earlier error, whose operation and line the message names",
    "NotSupportedError": "the message says what to use instead",
    "SynchronizationError": "read values outside of the region that forbids to wait, or allow it",
    "AcceleratorError": "connect again; operators: [GPU errors](runbook.md#gpu-errors)",
    "CaptureError": "do it before the capture or after a replay ([cuda-graphs.md](cuda-graphs.md))",
    "CompilationError": "mend the source; the message has the compiler's log",
    "ExtensionError": "mend the extension: the message is what its function has thrown",
    **{
        f"Extension{kind}": "catch it, or mend the extension: the message is what its function has thrown"
        for kind in (
            "KeyError", "AttributeError", "ImportError", "BufferError", "OverflowError", "MemoryError", "StopIteration",
        )
    },
    "ToolkitError": "run where the server has it, or have its operator install it ([extensions.md](extensions.md))",
    "ProgramError": "the message names the line of the module, or what is wrong with the file; export it again",
    "ProgramMismatchError": "do not compile that function, and report what it does: it is a defect of the server",
    "NotAllowedError": "ask the operator to allow it, and for it when you connect; the message names both",
    "InternalError": "report it with the number in the message, under which the server's log has the rest; "
    "operators: [defects](runbook.md#defects)",
    "ConfigurationError": "correct the variable that the message names ([configuration.md](configuration.md))",
    "CommunicationError": "try again after `Retry-After`; operators: "
    "[the states of readyz](runbook.md#the-states-of-readyz)",
    "ConnectError": "check address, port and certificate as the message says; the server may not run",
    "AuthenticationError": "present the token, or the session's key, that the message asks for; 403 where one was "
    "presented that may not do this",
    "HandshakeError": "install the client and the server of one version",
    "ProtocolError": "use a client of the server's version; a frame was malformed",
    "RequestError": "the detail says what is wrong with the request; `/docs` lists what there is",
    "UnknownIdError": "check the id: the tensor was freed, or is of another session; `GET` lists sessions and programs",
    "SessionInUseError": "detach the other client, or take the session over with `takeover=True`",
    "SessionDetachedError": "attach again: another client has taken the session over",
    "SessionLostError": "connect again and load a checkpoint; a longer lease outlives longer interruptions",
    "WorkerCrashedError": "connect again after `Retry-After` and load a checkpoint; operators: "
    "[worker down](runbook.md#worker-down)",
}  # fmt: skip
"""By the code of the error, what its reader can do."""


def codes(table: Table) -> str:
    """One row an error that the protocol knows."""
    return table(["code", "HTTP", "is a", "means", "what to do"], map(_row, BY_CODE.values()))


def _row(kind: type[TelegradError]) -> Sequence[str]:
    bases = [base for base in kind.__mro__ if base.__module__ == "builtins" and base not in (object, BaseException)]
    meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
    builtin = "" if kind is TelegradError else f"`{bases[0].__name__}`"
    return f"`{kind.__name__}`", str(status_of(kind(""))), builtin, meaning, WHAT_TO_DO[kind.__name__]
