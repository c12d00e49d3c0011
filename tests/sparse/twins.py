"""The same expressions of sparse tensors under telegrad and under PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from telegrad import TelegradError

Operands = Callable[[Any], dict[str, Any]]


def outcome(text: str, t: Any, operands: Operands) -> Any:
    """Return what an expression is under one of the libraries; errors of the program's kind count as results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(text, {"t": t, **operands(t)})  # noqa: S307 - the tests' own expressions
        except (TelegradError, RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            return error


def difference(ours: Any, theirs: Any, tolerance: float = 1e-5) -> str:
    """Say how two results differ; an empty text if they do not."""
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        agree = isinstance(theirs, Exception) and isinstance(ours, TelegradError)
        return "" if agree else f"{ours!r} where PyTorch has {theirs!r}"
    if isinstance(theirs, (tuple, list)):
        return "; ".join(filter(None, [difference(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)]))
    if isinstance(theirs, str):
        return "" if ours == theirs else f"\n{ours}\nwhere PyTorch has\n{theirs}"
    if not isinstance(theirs, torch.Tensor):
        return "" if ours == theirs else f"{ours!r} where PyTorch has {theirs!r}"
    facts = [
        (str(x.layout).split(".")[1], tuple(x.shape), str(x.dtype).split(".")[-1].rstrip("_"), x.requires_grad)
        for x in (ours, theirs)
    ]
    if facts[0] != facts[1]:
        return f"{facts[0]} where PyTorch has {facts[1]}"
    return elements_differ(ours, theirs, tolerance)


def elements_differ(ours: Any, theirs: torch.Tensor, tolerance: float = 1e-5) -> str:
    """Say how the elements of two tensors differ, whatever indices they store."""
    a, b = (array(x) for x in (ours, theirs))
    same = a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True)
    return "" if same else f"{a} where PyTorch has {b}"


def array(tensor: Any) -> Any:
    """Return all elements, in a type that NumPy has."""
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    is_half = str(dense.dtype).endswith(("bfloat16", "float16"))
    return np.asarray((dense.float() if is_half else dense).numpy())
