"""All families of CUDA kernels; importing this files them with their operations."""

from __future__ import annotations

from . import (
    copying,
    cudnn_attention,
    cudnn_convolution,
    fills,
    gemm_dot,
    gemm_operations,
    pointwise,
    random_numbers,
    reduce,
)

__all__ = [
    "copying",
    "cudnn_attention",
    "cudnn_convolution",
    "fills",
    "gemm_dot",
    "gemm_operations",
    "pointwise",
    "random_numbers",
    "reduce",
]
