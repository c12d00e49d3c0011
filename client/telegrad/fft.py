"""Discrete Fourier transforms under the names of PyTorch's ``torch.fft``."""

from __future__ import annotations

from telegrad._ops.functions import populate as _populate

_populate(globals(), "fft")
