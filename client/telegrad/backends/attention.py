"""Switches of attention's kernels, under the names of ``torch.backends.cuda``. They are kept, and change nothing.

The server chooses the kernel by shape, type and device. All of them compute the same function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = [
    "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "is_flash_attention_available", "math_sdp_enabled", "mem_efficient_sdp_enabled", "sdp_kernel",
]  # fmt: skip

_allowed: Final = {"flash": True, "math": True, "mem_efficient": True, "cudnn": True}


@contextmanager
def allowed(switches: Mapping[str, bool]) -> Iterator[None]:
    """Set switches within the block."""
    before = dict(_allowed)
    _allowed.update(switches)
    try:
        yield
    finally:
        _allowed.update(before)


def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> object:
    """Set all four switches within a block; the older form of ``nn.attention.sdpa_kernel``."""
    return allowed(
        {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient, "cudnn": enable_cudnn}
    )


def flash_sdp_enabled() -> bool:
    """Whether attention may be computed in one pass."""
    return _allowed["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Say whether attention may be computed in one pass."""
    _allowed["flash"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """Whether attention may be computed by products and softmax."""
    return _allowed["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Say whether attention may be computed by products and softmax."""
    _allowed["math"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether attention may be computed in one pass that saves memory."""
    return _allowed["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Say whether attention may be computed in one pass that saves memory."""
    _allowed["mem_efficient"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether attention may be computed by cuDNN."""
    return _allowed["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Say whether attention may be computed by cuDNN."""
    _allowed["cudnn"] = bool(enabled)


def is_flash_attention_available() -> bool:
    """Whether attention can be computed in one pass: it can, on every device."""
    return True
