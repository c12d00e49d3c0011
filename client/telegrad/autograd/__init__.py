"""Differentiation: ``backward`` and ``grad``, and functions with derivatives of the user's own."""

from __future__ import annotations

from telegrad._session.grad_mode import (
    enable_grad as enable_grad,
)
from telegrad._session.grad_mode import (
    inference_mode as inference_mode,
)
from telegrad._session.grad_mode import (
    no_grad as no_grad,
)
from telegrad._session.grad_mode import (
    set_grad_enabled as set_grad_enabled,
)
from telegrad._tensor.tensor import Tensor as Variable

from . import function as function
from ._passes import METHODS as METHODS
from ._passes import backward as backward
from ._passes import grad as grad
from .function import Function as Function

__all__ = ["Function", "Variable", "backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]
