"""What a session has chosen about precision, determinism and libraries, under PyTorch's names.

Equal choices are one object, so that kernels which depend on them keep variants by it.
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
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {"preferred_blas_library": ("default", "cublas", "cublaslt", "own")}
_KNOWN: dict[tuple[Any, ...], Switches] = {}


class Switches:
    """Immutable; ``tuner`` is where measured choices are looked up and noted, None where they are not wanted."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "allow_tf32",
        "deterministic_algorithms", "preferred_blas_library", "tuner",
    )  # fmt: skip

    allow_tf32: bool
    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool
    preferred_blas_library: str
    deterministic_algorithms: bool
    tuner: Tuner | None

    @staticmethod
    def of(settings: dict[str, Any], tuner: Tuner | None = None) -> Switches:
        """The switches of these settings; the rest as by default."""
        every = {**_DEFAULTS, **settings}
        key = tuple(every.values())
        found = _KNOWN.get(key) if tuner is None else None
        if found is None:
            found = object.__new__(Switches)
            for name, value in every.items():
                setattr(found, name, value)
            found.tuner = tuner
            if tuner is None:
                _KNOWN[key] = found
        return found

    def but(self, name: str, value: Any) -> Switches:
        """These with one set otherwise; ProtocolError where there is no such switch, or it has no such position."""
        accepted = value in _CHOICES[name] if name in _CHOICES else type(value) is bool and name in _DEFAULTS
        if not accepted:
            raise ProtocolError(f"unknown mode {name!r} or value {value!r}")
        return Switches.of({**self._settings(), name: value}, self.tuner)

    def tuned_by(self, tuner: Tuner | None) -> Switches:
        """These with measured choices taken from ``tuner``, or from nowhere; always others than before."""
        return Switches.of(self._settings(), tuner)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _DEFAULTS}


NAMES: Final = frozenset(_DEFAULTS)
DEFAULT: Final = Switches.of({})
