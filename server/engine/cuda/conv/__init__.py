"""Convolution through cuDNN, and pooling by our own kernels."""

from __future__ import annotations
