"""The same expressions of nested tensors under telegrad and under PyTorch: values, gradients and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from telegrad import TelegradError

LENGTHS = ([2, 3], [0, 1, 4], [1, 0, 1, 3], [3, 3], [5], [1, 1, 1])
"""Sizes of batches: uneven ones, with empty elements and such of one row among them, even ones, and one alone."""
Operands = Callable[[Any], dict[str, Any]]
_REFUSALS = (TelegradError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError)


def operands_of(rng: np.random.Generator, lengths: list[int], layout: str = "jagged", width: int = 4) -> Operands:
    """Return what makes the operands of expressions: nested tensors of one division, weights and indices."""
    count, total = len(lengths), sum(lengths)
    drawn = {
        "x": rng.standard_normal((total, width)), "y": rng.standard_normal((total, width)),
        "z": rng.standard_normal((total, 2, width)), "w": rng.standard_normal((3, width)),
        "m": rng.standard_normal((width, 3)), "bm": rng.standard_normal((count, width, 3)),
        "row": rng.standard_normal(width), "b": rng.standard_normal(3), "each": rng.standard_normal((count, 1, width)),
        "full": rng.standard_normal((count, max(lengths), width)), "flat": rng.standard_normal(total),
        "table": rng.standard_normal((7, 3)),
    }  # fmt: skip
    indices = rng.integers(0, 7, total)

    def make(t: Any) -> dict[str, Any]:
        made: dict[str, Any] = {name: t.tensor(array.astype(np.float32)) for name, array in drawn.items()}
        made["i"] = t.tensor(indices)
        packed = ("x", "y", "z", "flat", "i")
        if layout == "jagged":
            offsets = t.tensor(np.cumsum([0, *lengths]))
            bounds = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)}
            for name in packed:
                made[name] = t.nested.nested_tensor_from_jagged(made[name], offsets, **bounds).detach()
        else:
            for name in packed:
                made[name] = t.nested.as_nested_tensor(list(made[name].split(lengths)))
        made["mask"] = made["x"] > 0
        return made

    return make


def outcome(text: str, t: Any, operands: dict[str, Any]) -> Any:
    """Return what an expression is under one of the libraries; refusals count as results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(text, {"t": t, "F": t.nn.functional, **operands})  # noqa: S307 - the tests' own expressions
        except _REFUSALS as error:
            return error


def difference(ours: Any, theirs: Any, tolerance: float = 2e-5) -> str:
    """Say how two results differ; an empty text if they do not."""
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        agree = isinstance(theirs, Exception) and isinstance(ours, TelegradError)
        return "" if agree else f"{ours!r} where PyTorch has {theirs!r}"
    if isinstance(theirs, (tuple, list)):
        return "; ".join(filter(None, [difference(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)]))
    if not isinstance(theirs, torch.Tensor):
        return "" if str(ours) == str(theirs) else f"{ours!r} where PyTorch has {theirs!r}"
    facts = [_facts(x) for x in (ours, theirs)]
    if facts[0] != facts[1]:
        return f"{facts[0]} where PyTorch has {facts[1]}"
    pairs = zip(arrays(ours), arrays(theirs), strict=True)
    same = all(a.shape == b.shape and np.allclose(a, b, tolerance, tolerance, equal_nan=True) for a, b in pairs)
    return "" if same else f"{arrays(ours)} where PyTorch has {arrays(theirs)}"


def _facts(tensor: Any) -> tuple[Any, ...]:
    """Return what two tensors must have in common beside their elements; a ragged size counts as its place."""
    if tensor.is_nested and str(tensor.layout).endswith("strided"):
        shape: Any = [tuple(part.shape) for part in tensor.unbind()]
    else:
        shape = tuple([size if isinstance(size, int) else "j" for size in tensor.shape])
    kind = str(tensor.dtype).split(".")[-1].rstrip("_")
    return str(tensor.layout).split(".")[-1], tensor.is_nested, shape, kind, tensor.requires_grad


def arrays(tensor: Any) -> list[Any]:
    """Return the elements of each tensor of a batch; of an ordinary tensor its own."""
    parts = tensor.detach().unbind() if tensor.is_nested else [tensor.detach()]
    return [np.asarray((part.float() if "16" in str(part.dtype) else part).numpy()) for part in parts]


def total(result: Any) -> Any:
    """Return a number to which every element of a result contributes another share."""
    flat = result.values().reshape(-1) if result.is_nested else result.reshape(-1)
    shares = flat.detach() * 0 + 1
    return (flat * (shares.cumsum(0) * 0.25).cos()).sum()


def gradients(text: str, t: Any, make: Operands, names: list[str]) -> list[Any]:
    """Return the gradients that an expression's result has with respect to operands."""
    operands = make(t)
    for name in names:
        operands[name].requires_grad_()
    result = outcome(text, t, operands)
    if isinstance(result, Exception):
        raise result
    total(result[0] if isinstance(result, tuple) else result).backward()
    return [operands[name].grad for name in names]
