"""CUDA kernels that treat a row at a time: softmax, normalization, and losses over classes."""

from __future__ import annotations
