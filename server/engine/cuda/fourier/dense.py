"""Transforms of row-major operands along their last dimensions, up to three: one run of a plan, which may wait.

They are tried before the general ones. cuFFT wants real numbers to be as aligned as complex ones, and overwrites the
input of transforms to real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda.runtime.launch import pointer
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Backend, Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.fourier import fft as ops

from . import (
    operations,  # its factories must be asked after these
    plans,
)
from .plans import BACKWARD, C2C, C2R, FORWARD, R2C, Description, Layout

_ = operations
Run = Callable[[int, int], None]


@prepares(ops._fft_c2c, keys.CUDA, deferrable=True)
def c2c(request: Request) -> Launch | None:
    input, dim, mode, forward = request.args
    return _scaled(request, dim, mode, input.shape, C2C, FORWARD if forward else BACKWARD)


@prepares(ops._fft_r2c, keys.CUDA, deferrable=True)
def r2c(request: Request) -> Launch | None:
    input, dim, mode, onesided = request.args
    return _scaled(request, dim, mode, input.shape, R2C, FORWARD) if onesided else None


def _scaled(
    request: Request, dim: tuple[int, ...], mode: int, shape: tuple[int, ...], which: int, direction: int
) -> Launch | None:
    """A transform, then a multiplication where the result is scaled."""
    run = _run_of(request.backend, request.args[0], request.outs[0], dim, which, direction)
    if run is None:
        return None
    scale = _scale(mode, dim, shape)

    def launch(args: Any, outs: Any) -> None:
        run(pointer(args[0]), pointer(outs[0]))
        if scale != 1:
            F.mul_(outs[0].alias(), scale)

    return launch


@prepares(ops._fft_c2r, keys.CUDA, deferrable=True)
def c2r(request: Request) -> Launch | None:
    input, dim, mode, _ = request.args
    (out,) = request.outs
    run = _run_of(request.backend, input, out, dim, C2R, BACKWARD)
    if run is None:
        return None
    scale = _scale(mode, dim, out.shape)

    def launch(args: Any, outs: Any) -> None:
        copied = F.mul(args[0].alias(), scale) if scale != 1 else F.clone(args[0].alias())
        run(pointer(copied), pointer(outs[0]))

    return launch


def _run_of(
    backend: Backend, input: Meta, out: Meta, dim: tuple[int, ...], which: int, direction: int
) -> Run | None:  # fmt: skip
    """What transforms from one address to another; None for operands that are not laid out for one run."""
    if not (plans.IS_AVAILABLE and out.numel and input.is_contiguous and out.is_contiguous):
        return None
    axes, rank = [d % out.ndim for d in dim], len(dim)
    widest = max(input.dtype.itemsize, out.dtype.itemsize)
    is_aligned = not (input.offset * input.dtype.itemsize % widest or out.offset * out.dtype.itemsize % widest)
    is_last = sorted(axes) == list(range(out.ndim - rank, out.ndim)) and (which == C2C or axes[-1] == out.ndim - 1)
    if rank > plans.MOST_DIMENSIONS or not is_last or not is_aligned:
        return None
    given, made = input.shape[-rank:], out.shape[-rank:]
    kind = plans.kind_of(which, "F" if widest == 8 else "D")
    described = Description(
        max(given, made), Layout(given, 1, math.prod(given)), Layout(made, 1, math.prod(made)), kind,
        math.prod(out.shape[:-rank]),
    )  # fmt: skip
    plan = plans.plans_on(backend.index).of(described)  # type: ignore[attr-defined]

    def run(source: int, target: int) -> None:
        plan.run(backend, source, target, direction)

    return run


def _scale(mode: int, dim: tuple[int, ...], shape: tuple[int, ...]) -> float:
    points = math.prod([shape[axis] for axis in dim])
    return 1.0 if not mode else 1 / points if mode == 2 else 1 / math.sqrt(points)
