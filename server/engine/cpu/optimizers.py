"""Steps of Adam and AdamW on float32 parameters: one compiled pass over memory for each, shared among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.device import threads
from server.engine.ops import optim as generic
from server.engine.registry import kernel
from telegrad_protocol.ops import optim as ops

Array = Any


@kernel(ops._fused_adam_, keys.CPU, movement=True)
def adam(xp, *lists, lr, weight_decay, **settings):
    if not _ran(lists, lr=float(lr), decay=weight_decay, shrink=1.0, **settings):
        generic._fused_adam_(xp, *lists, lr=lr, weight_decay=weight_decay, **settings)


@kernel(ops._fused_adamw_, keys.CPU, movement=True)
def adamw(xp, *lists, lr, weight_decay, **settings):
    if not _ran(lists, lr=float(lr), decay=0.0, shrink=1.0 - float(lr) * weight_decay, **settings):
        generic._fused_adamw_(xp, *lists, lr=lr, weight_decay=weight_decay, **settings)


def _ran(
    lists: tuple[Any, ...], *, lr: float, decay: float, shrink: float, beta1: float, beta2: float, eps: float,
    amsgrad: bool, maximize: bool, grad_scale: Any, found_inf: Any, advance: bool,
) -> bool:  # fmt: skip
    """Make the step if the loops take these tensors; False, and nothing changed, if not."""
    *tensors, _, steps = lists
    loops = None if amsgrad or grad_scale is not None or found_inf is not None else _loops(tensors)
    if loops is None:
        return False
    if advance:
        generic.advance_steps(np, steps, None)
    calls = []
    for step, *group in zip(steps, *tensors, strict=True):
        rate, small = generic.corrected(np, float(step), lr, eps, beta1, beta2)
        numbers = (rate, small, -1.0 if maximize else 1.0, decay, shrink, beta1, beta2, 1.0)
        vectors = [array.reshape(-1) for array in group]
        for share in threads.shares_of(vectors[0].size, 4 * vectors[0].nbytes, threads.VECTOR):
            calls.append((*[vector[share] for vector in vectors], *numbers))
    threads.run_loop(loops.adam, calls)
    return True


def _loops(tensors: list[Any]) -> Any:
    """The compiled loops if all tensors are row-major float32 and there is enough to do; else None."""
    for arrays in tensors:
        for array in arrays:
            if array.dtype.char != "f" or not array.flags.c_contiguous:
                return None
    return compiled.kernels() if sum([param.size for param in tensors[0]]) >= compiled.LEAST else None
