"""Settings of the whole program: default dtype, precision, determinism, libraries. Every session is told each of them.

They are submitted in order with the operations, so a setting holds for what comes after it. ``backends`` and
``cuda.tunable`` show them under PyTorch's names.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Final

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ConfigurationError
from telegrad_protocol.messages import Mode
from telegrad_protocol.pytorch_variables import TUNABLE_DEFAULT, complaints, fixed_settings, initial_settings

from .current import open_sessions
from .own_code import depth_of_program
from .session import ClientSession

_DEFAULTS: Final[dict[str, Any]] = {
    "allow_tf32": False,
    "allow_fp16_reduced_precision_reduction": True,
    "allow_bf16_reduced_precision_reduction": True,
    "preferred_blas_library": "default",
    "deterministic_algorithms": False,
    "fill_uninitialized_memory": True,
    "cudnn_allow_tf32": True,
    "cudnn_deterministic": False,
    "cudnn_benchmark": False,
    "cudnn_enabled": True,
    "tunable": TUNABLE_DEFAULT,
    "num_threads": 0,
    "anomaly": 0,
}
_chosen: dict[str, Any] = _DEFAULTS | initial_settings()
_fixed: Final = fixed_settings()
"""What the environment has fixed: sessions are told this, whatever the program chooses."""


_told: set[str] = set()


def get(name: str) -> Any:
    """Return the value of a setting."""
    return _chosen[name]


def put(name: str, value: Any) -> None:
    """Give a setting another value, from the next instruction of every session on."""
    _chosen[name] = value
    for session in open_sessions():
        session.submit(Mode(name, _fixed.get(name, value)))


def snapshot() -> dict[str, Any]:
    """Return a copy of all settings."""
    return dict(_chosen)


def restore(settings: dict[str, Any]) -> None:
    """Take back what ``snapshot`` returned; open sessions are not told, sessions opened later are."""
    _chosen.update(settings)


def require_bool(name: str, value: Any) -> bool:
    """Return ``value`` if it is a bool, and raise ArgumentError in the name of ``name`` if not."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: expected a bool, got {value!r}")
    return value


def set_default_dtype(d: DType) -> None:
    """Set the type of new floating-point tensors, which Python floats also count as."""
    dtypes.set_default_dtype(d)
    for session in open_sessions():
        session.submit(Mode("default_dtype", d.code))


def announce(session: ClientSession) -> None:
    """Tell a new session which settings differ from the defaults."""
    if dtypes.get_default_dtype() is not dtypes.float32:
        session.submit(Mode("default_dtype", dtypes.get_default_dtype().code))
    for name, value in (_chosen | _fixed).items():
        if value != _DEFAULTS[name]:
            session.submit(Mode(name, value))


def warn_of_variables(is_private: bool) -> None:
    """Warn once, at the program's line, of PyTorch's variables that are not understood or change nothing.

    ``is_private``: the program's own server reads the environment, too.
    """
    for text in complaints(is_private, os.environ):
        if text not in _told:
            _told.add(text)
            warnings.warn(text, stacklevel=depth_of_program())


def seconds_from(variable: str, default: float) -> float:
    """Return the seconds that a variable gives, or ``default`` where it is not set; or ConfigurationError."""
    text = os.environ.get(variable, "")
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ConfigurationError(f"{variable} must be a number of seconds, got {text!r}")
    return seconds


def wants_kernels(kernels: bool | None, is_private: bool) -> bool:
    """Return whether a session is to run kernels of the program's own; None leaves it to the environment."""
    if kernels is not None:
        return bool(kernels)
    return is_private or os.environ.get("TELEGRAD_KERNELS", "0") not in ("", "0")
