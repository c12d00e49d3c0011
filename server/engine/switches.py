"""A session's settings of precision, determinism and libraries, under PyTorch's names.

Equal settings are one object, by which kernels that depend on them keep their variants.
"""

from __future__ import annotations

from typing import Any, Final

from telegrad_protocol.errors import ProtocolError

from .tuning import Tuner

_DEFAULTS: Final[dict[str, Any]] = {
    "allow_tf32": False,
    "allow_fp16_reduced_precision_reduction": True,
    "allow_bf16_reduced_precision_reduction": True,
    "preferred_blas_library": "default",
    "deterministic_algorithms": False,
    "fill_uninitialized_memory": True,
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {"preferred_blas_library": ("default", "cublas", "cublaslt", "own")}
_KNOWN: dict[tuple[Any, ...], Switches] = {}


class Switches:
    """One immutable set of settings; ``tuner`` holds measured choices, and is None where tuning is off."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "allow_tf32",
        "deterministic_algorithms", "fill_uninitialized_memory", "preferred_blas_library", "tuner",
    )  # fmt: skip

    allow_tf32: bool
    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool
    preferred_blas_library: str
    deterministic_algorithms: bool
    fill_uninitialized_memory: bool
    tuner: Tuner | None

    @property
    def fills_memory(self) -> bool:
        """Whether new memory gets elements that show that nothing was written there."""
        return self.deterministic_algorithms and self.fill_uninitialized_memory

    @staticmethod
    def of(settings: dict[str, Any], tuner: Tuner | None = None) -> Switches:
        """The switches with these settings and defaults for the others; equal ones without a tuner are one object."""
        values = {**_DEFAULTS, **settings}
        key = tuple(values.values())
        switches = _KNOWN.get(key) if tuner is None else None
        if switches is None:
            switches = object.__new__(Switches)
            for name, value in values.items():
                setattr(switches, name, value)
            switches.tuner = tuner
            if tuner is None:
                _KNOWN[key] = switches
        return switches

    def with_setting(self, name: str, value: Any) -> Switches:
        """A copy with one switch changed; raises ProtocolError for an unknown switch or value."""
        accepted = value in _CHOICES[name] if name in _CHOICES else type(value) is bool and name in _DEFAULTS
        if not accepted:
            raise ProtocolError(f"unknown mode {name!r} or value {value!r}")
        return Switches.of({**self._settings(), name: value}, self.tuner)

    def with_tuner(self, tuner: Tuner | None) -> Switches:
        """A copy that takes measured choices from ``tuner``, or has none; it never equals the switches before."""
        return Switches.of(self._settings(), tuner)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _DEFAULTS}


NAMES: Final = frozenset(_DEFAULTS)
DEFAULT: Final = Switches.of({})
