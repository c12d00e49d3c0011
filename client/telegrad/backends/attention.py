"""Switches of attention's kernels, under the names of ``torch.backends.cuda``. They are kept, and change nothing.

The server chooses the kernel by shape, type and device. All of them compute the same function.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes

__all__ = [
    "SDPAParams", "can_use_cudnn_attention", "can_use_efficient_attention", "can_use_flash_attention",
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


@dataclass(frozen=True)
class SDPAParams:
    """The arguments of a call of ``scaled_dot_product_attention``, of which ``can_use_flash_attention`` is asked."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


_HALVES: Final = (dtypes.float16, dtypes.bfloat16)
_LARGEST_HEAD: Final = 256


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether PyTorch would compute this call by FlashAttention; with ``debug``, warn of what is against it."""
    reasons = _against(params, "flash", _HALVES)
    if params.attn_mask is not None:
        reasons.append("there is a mask")
    if params.query.shape[-1] != params.value.shape[-1] or params.query.shape[-1] > _LARGEST_HEAD:
        reasons.append(f"heads of query and value differ in size, or have more than {_LARGEST_HEAD} elements")
    return _told("flash", reasons, debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether PyTorch would compute this call in one pass that saves memory; with ``debug``, warn of what is not so."""
    return _told("efficient", _against(params, "mem_efficient", (*_HALVES, dtypes.float32)), debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether PyTorch would compute this call by cuDNN; with ``debug``, warn of what is against it."""
    return _told("cudnn", _against(params, "cudnn", _HALVES), debug)


def _against(params: SDPAParams, switch: str, kinds: tuple[dtypes.DType, ...]) -> list[str]:
    """Return what is against a kernel for these types, of which a GPU has its switch."""
    operands = (params.query, params.key, params.value)
    reasons = [] if _allowed[switch] else ["it is switched off"]
    if not all([operand.is_cuda for operand in operands]):
        reasons.append("not all operands are on a GPU")
    if params.query.dtype not in kinds or len({operand.dtype for operand in operands}) > 1:
        reasons.append(f"operands are of other types than {', '.join(map(str, kinds))}, or of several")
    if not all([operand.dim() == 4 for operand in operands]):
        reasons.append("not all operands have 4 dimensions")
    return reasons


def _told(name: str, reasons: list[str], debug: bool) -> bool:
    if reasons and debug:
        warnings.warn(f"{name} attention cannot be used: {'; '.join(reasons)}", stacklevel=3)
    return not reasons
