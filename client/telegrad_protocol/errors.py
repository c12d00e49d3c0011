"""Every error that telegrad raises, on both ends of the wire.

A type per thing that a caller can do about it; each also is the builtin that PyTorch raises there.

    TelegradError
    |-- ShapeError (RuntimeError)            operands whose shapes do not fit together
    |-- DTypeError (NotImplementedError)     an element type that the operation does not take
    |-- DeviceError (RuntimeError)           operands on different devices, or a device that is not there
    |-- DimensionError (IndexError)          a dimension that the tensor does not have
    |-- IndexOutOfRangeError (IndexError, RuntimeError)  an index beyond the size of its dimension
    |-- ArgumentError (ValueError, RuntimeError)  a value that makes no sense for its parameter
    |-- ArgumentTypeError (TypeError)        an argument of the wrong kind, missing, or unknown
    |-- AutogradError (RuntimeError)         no graph, freed graph, saved value modified in place
    |-- InplaceError (RuntimeError)          an in-place operation that is not allowed
    |-- LinearAlgebraError (RuntimeError)    a singular or indefinite matrix, no convergence
    |-- OutOfMemoryError (RuntimeError)      the device, or the session's quota, is exhausted
    |-- LimitExceededError (RuntimeError)    more time or work than the server allows for one instruction
    |-- StateDictError (RuntimeError)        a state dictionary that does not fit the module or optimizer
    |-- SynchronizationError (RuntimeError)  a wait for the server, while the program forbids it
    |-- AcceleratorError (RuntimeError)      a GPU that failed; it is also raised as WorkerCrashedError
    |   `-- CaptureError                     what is not permitted while a graph is captured, or a graph that is none
    |-- NotComputedError (RuntimeError)      a result that was skipped because an earlier operation failed
    |-- NotSupportedError (NotImplementedError)  a combination that exists in PyTorch and not here
    |-- CompilationError (RuntimeError)      a kernel or an extension of the program's own that does not compile
    |-- ExtensionError (RuntimeError)        what a function of an extension has thrown, or cannot be loaded
    |   |-- ExtensionKeyError (KeyError)         a key that is not there
    |   |-- ExtensionAttributeError (AttributeError) an attribute that is not there
    |   |-- ExtensionImportError (ImportError)   a module that is not there
    |   |-- ExtensionBufferError (BufferError)   memory that is not as it was asked for
    |   |-- ExtensionOverflowError (OverflowError) a number that is too large
    |   |-- ExtensionMemoryError (MemoryError)   memory that the host does not have
    |   `-- ExtensionStopIteration (StopIteration) the end of what it goes through
    |-- ToolkitError (OSError)               a compiler or a GPU that an extension needs, and the server does not have
    |-- ProgramError (RuntimeError)          what cannot be exported, or a file that holds no valid program
    |-- ProgramMismatchError (RuntimeError)  a compiled function gives something else than its instructions
    |-- NotAllowedError (PermissionError)    what the operator of the server has not allowed
    |-- InternalError (RuntimeError)         a defect of the server, whose log says more
    |-- ConfigurationError (ValueError)      a setting with a bad value
    `-- CommunicationError (ConnectionError)
        |-- ConnectError                     nobody answers at the address
        |-- AuthenticationError              a missing or wrong token
        |-- HandshakeError                   versions or operation tables differ
        |-- ProtocolError                    a frame that is malformed, too large, or out of order
        |-- RequestError                     an HTTP request for what is not there, or in a form that is not taken
        |-- UnknownIdError                   a tensor id that the session does not hold
        |-- SessionInUseError                another client is attached to the session
        |-- SessionDetachedError             this client has left the session, or another one took it over
        |-- SessionLostError                 the session's lease ended or it was closed
        `-- WorkerCrashedError               the engine process died; its tensors are gone
"""

from __future__ import annotations


class TelegradError(Exception):
    """Base of all errors of telegrad.

    Errors that the server raised carry ``operation``, ``operands`` (such as ``float32[2,3]``), ``site`` (file,
    line and function of the client call that caused it) and ``server_traceback``; they are empty otherwise.
    """

    operation: str = ""
    operands: str = ""
    site: str = ""
    server_traceback: str = ""

    @property
    def code(self) -> str:
        """The stable name of this kind of error on the wire."""
        return type(self).__name__

    def __str__(self) -> str:
        parts = [super().__str__()]
        if self.site:
            parts.append(f"  caused by {self.site}")
        return "\n".join(parts)

    @property
    def message(self) -> str:
        """What is wrong, without where it was caused."""
        return str(self.args[0]) if self.args else ""


class ShapeError(TelegradError, RuntimeError):
    """Operands have shapes that do not fit together."""


class DTypeError(TelegradError, NotImplementedError):
    """The operation does not take this element type."""


class DeviceError(TelegradError, RuntimeError):
    """Operands are on different devices, or the device does not exist."""


class DimensionError(TelegradError, IndexError):
    """The tensor has no such dimension."""


class IndexOutOfRangeError(TelegradError, IndexError, RuntimeError):
    """An index lies beyond the size of its dimension.

    PyTorch raises an IndexError where a dimension is indexed and a RuntimeError where ``gather`` and ``scatter`` do it.
    """


def out_of_bounds(op: str, index: int, place: str) -> str:
    """Return what PyTorch says of an index that a place such as ``dimension 1 of size 2`` does not have."""
    if op.startswith("embedding"):
        return "index out of range in self"
    return f"index {index} is out of bounds for {place.replace(' of size ', ' with size ')}"


class ArgumentError(TelegradError, ValueError, RuntimeError):
    """A value makes no sense for its parameter.

    PyTorch raises a ValueError where its Python code looks at the value and a RuntimeError where its kernels do;
    programs expect one or the other.
    """


class ArgumentTypeError(TelegradError, TypeError):
    """An argument is of the wrong kind, missing, or unknown."""


class AutogradError(TelegradError, RuntimeError):
    """There is no graph, it was freed, or a value saved for backward was modified in place."""


class InplaceError(TelegradError, RuntimeError):
    """An in-place operation is not allowed on this tensor."""


class LinearAlgebraError(TelegradError, RuntimeError):
    """A matrix is singular or indefinite, or an iteration did not converge."""


class OutOfMemoryError(TelegradError, RuntimeError):
    """The device, or the session's quota, has no room for the allocation."""


class LimitExceededError(TelegradError, RuntimeError):
    """An instruction takes more time or work than the server allows."""


class StateDictError(TelegradError, RuntimeError):
    """A state dictionary does not fit the module or optimizer that it is loaded into."""


class OperatorError(TelegradError, RuntimeError):
    """An operator was defined, overridden or called in a way that its schema does not allow."""


class NotComputedError(TelegradError, RuntimeError):
    """A result was never computed, because an earlier operation of its session failed."""


class NotSupportedError(TelegradError, NotImplementedError):
    """PyTorch has this combination and telegrad does not."""


class SynchronizationError(TelegradError, RuntimeError):
    """The program waits for the server while ``cuda.set_sync_debug_mode("error")`` forbids it."""


class AcceleratorError(TelegradError, RuntimeError):
    """A GPU has failed."""


class CaptureError(AcceleratorError):
    """What is not permitted while a CUDA graph is captured, and the use of a graph that was not captured."""


class CompilationError(TelegradError, RuntimeError):
    """Code that the program brings does not compile; the message has the compiler's log."""


class ExtensionError(TelegradError, RuntimeError):
    """A function of an extension has thrown an exception, returned what it should not, or cannot be loaded."""


class ExtensionKeyError(ExtensionError, KeyError):
    """A function of an extension has told of a key that is not there."""


class ExtensionAttributeError(ExtensionError, AttributeError):
    """A function of an extension has told of an attribute that is not there."""


class ExtensionImportError(ExtensionError, ImportError):
    """A function of an extension has told of a module that is not there."""


class ExtensionBufferError(ExtensionError, BufferError):
    """A function of an extension has told of memory that is not as it was asked for."""


class ExtensionOverflowError(ExtensionError, OverflowError):
    """A function of an extension has told of a number that is too large."""


class ExtensionMemoryError(ExtensionError, MemoryError):
    """A function of an extension has told of memory that the host does not have."""


class ExtensionStopIteration(ExtensionError, StopIteration):
    """A function of an extension has told of the end of what it goes through."""


class ToolkitError(TelegradError, OSError):
    """The server does not have the compiler, CUDA's toolkit or the GPU that an extension is compiled with or for."""


class ProgramError(TelegradError, RuntimeError):
    """A function cannot be exported as a program, or a file holds no valid one."""


class ProgramMismatchError(TelegradError, RuntimeError):
    """A compiled function with ``verify=True`` gives something else than its instructions; it is a defect to report."""


class NotAllowedError(TelegradError, PermissionError):
    """The operator of the server has not allowed this, or the session has not asked for it when it was opened."""


class InternalError(TelegradError, RuntimeError):
    """A defect of the server, whose log says more."""


class ConfigurationError(TelegradError, ValueError):
    """A setting has a bad value."""


class CommunicationError(TelegradError, ConnectionError):
    """The conversation with the server failed."""


class ConnectError(CommunicationError):
    """Nobody answers at the address."""


class AuthenticationError(CommunicationError):
    """The token is missing or wrong."""


class HandshakeError(CommunicationError):
    """Client and server do not speak the same protocol version or operation table."""


class ProtocolError(CommunicationError):
    """A frame is malformed, too large, or out of order."""


class RequestError(CommunicationError):
    """The server has no such endpoint, or it does not take the request in this form."""


class UnknownIdError(CommunicationError):
    """There is no tensor, session or program of this id or name."""


class SessionInUseError(CommunicationError):
    """Another client is attached to the session."""


class SessionDetachedError(CommunicationError):
    """This client has left the session, or another one took it over; the session goes on."""


class SessionLostError(CommunicationError):
    """The session's lease ended, or it was closed."""


class WorkerCrashedError(CommunicationError, AcceleratorError):
    """The engine process died, and the session's tensors with it."""


def _tree(root: type[TelegradError]) -> dict[str, type[TelegradError]]:
    errors = {root.__name__: root}
    for child in root.__subclasses__():
        errors.update(_tree(child))
    return errors


BY_CODE: dict[str, type[TelegradError]] = _tree(TelegradError)


def revive(
    code: str, message: str, operation: str = "", operands: str = "", site: str = "", server_traceback: str = ""
) -> TelegradError:
    """Make the error that the other end raised; an unknown ``code`` becomes ``InternalError``."""
    error = BY_CODE.get(code, InternalError)(message)
    error.operation, error.operands, error.site, error.server_traceback = operation, operands, site, server_traceback
    return error
