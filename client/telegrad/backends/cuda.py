"""Matrix products on GPUs: ``matmul`` holds the switches of their precision."""

from __future__ import annotations

from typing import Any

from telegrad._session import settings as _settings
from telegrad_protocol.errors import ArgumentError

_LIBRARIES = ("default", "cublas", "cublaslt", "own")
_PRECISIONS = ("highest", "high", "medium")


class _Switch:
    """A bool of the program, as an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _settings.get(self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        _settings.put(self._name, _settings.require_bool(self._name, value))


class Matmul:
    """``allow_tf32``: TensorFloat-32 for float32; the others: partial sums in the type of the result."""

    __slots__ = ()
    allow_tf32 = _Switch("allow_tf32")
    allow_fp16_reduced_precision_reduction = _Switch("allow_fp16_reduced_precision_reduction")
    allow_bf16_reduced_precision_reduction = _Switch("allow_bf16_reduced_precision_reduction")


matmul = Matmul()
_medium = False


def is_built() -> bool:
    """Whether the client can use GPUs; it always can, the server's."""
    return True


def preferred_blas_library(backend: str | None = None) -> str:
    """Which library multiplies matrices: ``default``, ``cublas``, ``cublaslt``, or telegrad's ``own``; tells which."""
    if backend is not None:
        if backend not in _LIBRARIES:
            raise ArgumentError(
                f"preferred_blas_library: unknown library {backend!r}; there are {', '.join(_LIBRARIES)}"
            )
        _settings.put("preferred_blas_library", backend)
    return str(_settings.get("preferred_blas_library"))


def set_float32_matmul_precision(precision: str) -> None:
    """``highest`` multiplies float32 as such; ``high`` and ``medium`` in TensorFloat-32."""
    global _medium
    if precision not in _PRECISIONS:
        raise ArgumentError(
            f"set_float32_matmul_precision: expected one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    _medium = precision == "medium"
    _settings.put("allow_tf32", precision != "highest")


def get_float32_matmul_precision() -> str:
    """How float32 matrices are multiplied."""
    if not _settings.get("allow_tf32"):
        return "highest"
    return "medium" if _medium else "high"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Give the same results for the same inputs every time, at the cost of speed where that takes other kernels."""
    _settings.put("deterministic_algorithms", _settings.require_bool("use_deterministic_algorithms", mode))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether results must be the same every time."""
    return bool(_settings.get("deterministic_algorithms"))
