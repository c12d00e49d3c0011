"""All families of CUDA kernels; importing this files them with their operations."""

from __future__ import annotations

from . import (
    copying,
    cudnn_attention,
    cudnn_convolution,
    embedding,
    fills,
    gemm_dot,
    gemm_operations,
    indexing,
    losses,
    norm,
    optim_adam,
    optim_gradients,
    optim_sgd,
    pointwise,
    random_numbers,
    reduce,
    scatter,
    softmax,
)

__all__ = [
    "copying",
    "cudnn_attention",
    "cudnn_convolution",
    "embedding",
    "fills",
    "gemm_dot",
    "gemm_operations",
    "indexing",
    "losses",
    "norm",
    "optim_adam",
    "optim_gradients",
    "optim_sgd",
    "pointwise",
    "random_numbers",
    "reduce",
    "scatter",
    "softmax",
]
