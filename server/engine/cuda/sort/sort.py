"""Sorting and selection as prepared kernels: which window of which order each operation wants."""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.cuda.runtime.launch import multiprocessors, nothing
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import sorting as ops

from .launch import LONGEST, Job, Sort, best, finds_best, job_of, select_rank, sorting

_FEW = 1024
"""Lines up to this long are sorted where one element is wanted; a block for each would be too much."""


def _both(request: Request, input: Meta, sort: Sort) -> Launch:
    """A launch that gives values and indices."""
    itemsize = input.dtype.itemsize
    begin, first, second = input.offset * itemsize, request.outs[0].offset * itemsize, request.outs[1].offset * 8

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        values, indices = outs
        sort(
            args[0].storage.block.pointer + begin,
            values.storage.block.pointer + first,
            indices.storage.block.pointer + second,
        )

    return launch


def _window(request: Request, dim: int, descending: bool, start: int, size: int, is_median: bool = False) -> Job | None:
    input: Meta = request.args[0]
    values, indices = request.outs[0].like(dtype=input.dtype), request.outs[-1]
    if len(request.outs) == 2:
        values = request.outs[0]
    job = job_of(input, values, indices, dim, descending, (start, size), is_median)
    return job if job.length < LONGEST else None


@prepares(ops.sort, keys.CUDA, deferrable=True)
def sort(request: Request) -> Launch | None:
    input, dim, descending = request.args[:3]
    if not input.numel:
        return nothing
    job = _window(request, dim, descending, 0, input.shape[dim] if input.ndim else 1)
    return job and _both(request, input, sorting(request.backend, job))


@prepares(ops.argsort, keys.CUDA, deferrable=True)
def argsort(request: Request) -> Launch | None:
    input, dim, descending = request.args[:3]
    if not input.numel:
        return nothing
    job = _window(request, dim, descending, 0, input.shape[dim] if input.ndim else 1)
    if job is None:
        return None
    run = sorting(request.backend, job)
    begin, target = input.offset * input.dtype.itemsize, request.outs[0].offset * 8

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        run(args[0].storage.block.pointer + begin, 0, outs[0].storage.block.pointer + target)

    return launch


@prepares(ops.topk, keys.CUDA, deferrable=True)
def topk(request: Request) -> Launch | None:
    input, k, dim, largest = request.args[:4]
    if not request.outs[0].numel:
        return nothing
    job = _window(request, dim, largest, 0, k if input.ndim else 1)
    if job is None:
        return None
    backend: Any = request.backend
    chosen = best(backend, job, multiprocessors(backend.index)) if finds_best(job) else sorting(backend, job)
    return _both(request, input, chosen)


@prepares(ops.kthvalue, keys.CUDA, deferrable=True)
def kthvalue(request: Request) -> Launch | None:
    k, dim = request.args[1:3]
    return _one(request, dim, k - 1, False)


@prepares(ops.median_dim, keys.CUDA, deferrable=True)
def median_dim(request: Request) -> Launch | None:
    input, dim = request.args[:2]
    return _one(request, dim, ((input.shape[dim] if input.ndim else 1) - 1) // 2, True)


def _one(request: Request, dim: int, rank: int, is_median: bool) -> Launch | None:
    """A launch that gives the element of a rank of each line."""
    input = request.args[0]
    if not request.outs[0].numel:
        return nothing
    job = _window(request, dim, False, rank, 1, is_median)
    if job is None:
        return None
    find = sorting if job.length <= _FEW else select_rank
    return _both(request, input, find(request.backend, job))
