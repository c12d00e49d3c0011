"""How the server computes: precision, libraries and determinism, under ``torch.backends``' names."""

from __future__ import annotations

from . import cuda, cudnn

__all__ = ["cuda", "cudnn"]
