"""Which kernels attention uses, as in ``torch.nn.attention``: the server chooses, whatever a program asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """The implementations of ``scaled_dot_product_attention`` that PyTorch has."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Accept a choice of implementations; the server takes the fastest that it has for the operands."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise ArgumentTypeError(f"sdpa_kernel: backends must be of SDPBackend, got {backends!r}")
    if not chosen:
        raise ArgumentError("sdpa_kernel: at least one backend must be allowed")
    yield
