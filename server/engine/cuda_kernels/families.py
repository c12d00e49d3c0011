"""All families of CUDA kernels; importing this files them with their operations."""

from __future__ import annotations

from . import copying, cudnn_attention, cudnn_convolution, gemm_dot, gemm_operations, pointwise, reduce

__all__ = ["copying", "cudnn_attention", "cudnn_convolution", "gemm_dot", "gemm_operations", "pointwise", "reduce"]
