"""Core operators of PyTorch's as compositions of simpler ones, for programs that ask for these by name."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

tg: Any = import_module("telegrad")


def gelu(self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)
        return 0.5 * self * (1 + tg.tanh(inner))
    return self * 0.5 * (1 + tg.erf(self * math.sqrt(0.5)))


def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    exponents = tg.exp(_widened(self) - tg.amax(_widened(self), [dim], keepdim=True))
    made = exponents / tg.sum(exponents, dim, keepdim=True)
    return made if half_to_float else made.to(self.dtype)


def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = _widened(self) - tg.amax(_widened(self), [dim], keepdim=True)
    made = shifted - tg.log(tg.sum(tg.exp(shifted), dim, keepdim=True))
    return made if half_to_float else made.to(self.dtype)


def _widened(tensor: Any) -> Any:
    """Return a tensor in half precision as float32, in which the server computes with it."""
    return tensor.float() if tensor.dtype in (tg.float16, tg.bfloat16) else tensor


def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = tg.mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)
