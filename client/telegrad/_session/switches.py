"""The program's choices about precision, determinism and libraries; sessions are told, in order with operations.

``backends`` and ``cuda.tunable`` show them under PyTorch's names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.messages import Mode

from . import modes as _modes

if TYPE_CHECKING:
    from .session import Session

_DEFAULTS: Final[dict[str, Any]] = {
    "allow_tf32": False,
    "allow_fp16_reduced_precision_reduction": True,
    "allow_bf16_reduced_precision_reduction": True,
    "preferred_blas_library": "default",
    "deterministic_algorithms": False,
    "cudnn_allow_tf32": True,
    "cudnn_deterministic": False,
    "cudnn_benchmark": False,
    "tunable": (False, True, 30, 100),
}
_chosen: dict[str, Any] = dict(_DEFAULTS)


def get(name: str) -> Any:
    """What a switch is set to."""
    return _chosen[name]


def put(name: str, value: Any) -> None:
    """Set a switch, for what comes after."""
    _chosen[name] = value
    for session in _modes.open_sessions():
        session.submit(Mode(name, value))


def bool_of(name: str, value: Any) -> bool:
    """What a switch is to be set to, which nothing but a bool says."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: expected a bool, got {value!r}")
    return value


def announce(session: Session) -> None:
    """Tell a new session what differs from its defaults."""
    for name, value in _chosen.items():
        if value != _DEFAULTS[name]:
            session.submit(Mode(name, value))
