"""The errors that telegrad raises; ``telegrad_protocol.errors`` shows them as a tree."""

from __future__ import annotations

from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    AuthenticationError,
    AutogradError,
    CommunicationError,
    CompilationError,
    ConfigurationError,
    ConnectError,
    DeviceError,
    DimensionError,
    DTypeError,
    ExtensionError,
    HandshakeError,
    IndexOutOfRangeError,
    InplaceError,
    InternalError,
    LimitExceededError,
    LinearAlgebraError,
    NotAllowedError,
    NotComputedError,
    NotSupportedError,
    OperatorError,
    OutOfMemoryError,
    ProgramError,
    ProgramMismatchError,
    ProtocolError,
    RequestError,
    SessionLostError,
    ShapeError,
    TelegradError,
    ToolkitError,
    UnknownIdError,
    WorkerCrashedError,
)  # fmt: skip

__all__ = [
    "ArgumentError", "ArgumentTypeError", "AuthenticationError", "AutogradError", "CommunicationError",
    "CompilationError", "ConfigurationError", "ConnectError", "DTypeError", "DeviceError", "DimensionError",
    "ExtensionError", "HandshakeError", "IndexOutOfRangeError", "InplaceError", "InternalError",
    "LimitExceededError", "LinearAlgebraError", "NotAllowedError", "NotComputedError", "NotSupportedError",
    "OperatorError", "OutOfMemoryError", "ProgramError", "ProgramMismatchError", "ProtocolError", "RequestError",
    "SessionLostError", "ShapeError", "TelegradError", "ToolkitError", "UnknownIdError",
    "WorkerCrashedError",
]  # fmt: skip
