"""Scaled dot-product attention: cuDNN, our kernel for Hopper, and our tiled kernels."""

from __future__ import annotations
