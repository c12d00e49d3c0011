"""Which kernels attention may use, as in ``torch.nn.attention``. The server chooses by shape, type and device.

``sdpa_kernel`` is accepted and changes nothing but what it tells: the backends compute the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from telegrad.backends import attention as _attention
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """The ways of PyTorch to compute attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {
    SDPBackend.MATH: "math", SDPBackend.FLASH_ATTENTION: "flash", SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}  # fmt: skip


@contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Name the backends that attention may use within the block, or as a decorator in a function."""
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, (list, tuple)) or not all(isinstance(one, SDPBackend) for one in chosen):
        raise ArgumentTypeError(f"sdpa_kernel: expected an SDPBackend or a list of them, not {backends!r}")
    if not chosen:
        raise ArgumentError("sdpa_kernel: expected at least one backend")
    with _attention.allowed({name: backend in chosen for backend, name in _SWITCHES.items()}):
        yield
