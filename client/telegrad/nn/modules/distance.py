"""Layers that measure how far vectors are apart."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F

from .module import Module

__all__ = ["CosineSimilarity"]


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along ``dim``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
