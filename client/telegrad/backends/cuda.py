"""Matrix products on GPUs: ``matmul`` holds the switches of their precision."""

from __future__ import annotations

from typing import Any

from telegrad._session import settings as _settings
from telegrad._session.current import current_session
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .attention import *  # noqa: F403  # as in torch.backends.cuda, they are in this module

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
_medium = _warns_only = False
_linalg_library = "default"


def is_built() -> bool:
    """Whether the server has GPUs: programs that ask this go on to use one."""
    return current_session().first_gpu is not None


def preferred_blas_library(backend: str | None = None) -> str:
    """Which library multiplies matrices: ``default``, ``cublas``, ``cublaslt``, or telegrad's ``own``; tells which."""
    if backend is not None:
        if backend not in _LIBRARIES:
            raise ArgumentError(
                f"preferred_blas_library: unknown library {backend!r}; there are {', '.join(_LIBRARIES)}"
            )
        _settings.put("preferred_blas_library", backend)
    return str(_settings.get("preferred_blas_library"))


def preferred_linalg_library(backend: str | None = None) -> str:
    """Take the name of a library for linear algebra, and tell it: the server always uses cuSOLVER and cuBLAS."""
    global _linalg_library
    if backend is not None:
        if backend not in ("default", "cusolver", "magma"):
            raise ArgumentError(f"preferred_linalg_library: unknown library {backend!r}")
        _linalg_library = backend
    return _linalg_library


class _PlanCache:
    """cuFFT's plans, which the server keeps by itself."""

    max_size = size = 0

    def clear(self) -> None:
        """Do nothing: the server gives up old plans by itself."""

    def __getitem__(self, device: object) -> _PlanCache:
        return self


cufft_plan_cache = _PlanCache()


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
    global _warns_only
    for name, given in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(given, bool):
            raise ArgumentTypeError(
                f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(given).__name__}"
            )
    _settings.put("deterministic_algorithms", mode)
    _warns_only = warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether results must be the same every time."""
    return bool(_settings.get("deterministic_algorithms"))


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What ``use_deterministic_algorithms`` was told; here every operation has a deterministic kernel."""
    return _warns_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Give the same results every time unless the mode is ``"default"`` or 0; ``"warn"`` is 1 and ``"error"`` 2."""
    modes = ("default", "warn", "error")
    if debug_mode not in (*modes, 0, 1, 2):
        raise ArgumentError(f"set_deterministic_debug_mode: invalid mode {debug_mode!r}; there are {', '.join(modes)}")
    number = modes.index(debug_mode) if isinstance(debug_mode, str) else int(debug_mode)
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """The number of the mode: 0, 1 for warnings only, 2."""
    return 0 if not are_deterministic_algorithms_enabled() else 1 if _warns_only else 2
