"""Products of matrices of half precision, which are computed in single precision.

Operands are widened, and results are rounded, by compiled loops that threads share, instead of by NumPy, which takes a
nanosecond or two for each element.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from server.engine import compiled, keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cpu.halves import narrow, widen, words
from server.engine.device import threads
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import linalg as ops

Array = Any


def _in_memory_order(array: Array) -> Array:
    """A view of an array whose dimensions are ordered as they lie in memory."""
    return array.transpose(sorted(range(array.ndim), key=lambda d: -array.strides[d]))


def _wide(array: Array) -> Array:
    """A copy in single precision, in the same order in memory."""
    copy = np.empty_like(array, np.float32)
    source, target = _in_memory_order(array), _in_memory_order(copy)
    loops = compiled.kernels("elementwise")
    if loops is not None and source.flags.c_contiguous and target.flags.c_contiguous:
        threads.run_vectors(loops.widen[array.dtype.char], words(source), target)
    else:
        widen(array, copy)
    return copy


def _round_into(target: Array, source: Array) -> None:
    loops = compiled.kernels("elementwise")
    if loops is not None and target.flags.c_contiguous:
        threads.run_vectors(loops.narrow[target.dtype.char], source, words(target))
    else:
        narrow(source, target)


def _are_large_halves(metas: Iterable[Meta]) -> bool:
    """Whether all have half precision, and one of them is worth a compiled loop."""
    metas = list(metas)
    return all([meta.dtype in HALVES for meta in metas]) and max([meta.numel for meta in metas]) >= compiled.LEAST


def _prepare(request: Request) -> Launch | None:
    given = [arg for arg in request.args if isinstance(arg, Meta)]
    if not _are_large_halves([*given, *request.outs]) or not all([meta.numel for meta in given]):
        return None
    op = request.op
    function = OPERATORS[op.name].kernels[keys.CPU].function
    names = [param.name for param in op.params[op.positional :]]
    fixed = dict(zip(names, request.args[op.positional :], strict=True))
    shapes = [meta.shape for meta in request.outs]
    is_single = isinstance(op.infer(request.args), Meta)
    others = request.args

    def launch(args: Any, outs: Any) -> None:
        pairs = zip(args[: op.positional], others, strict=False)
        operands = [_wide(arg.array) if arg.__class__ is Value else other for arg, other in pairs]
        results = [np.empty(shape, np.float32) for shape in shapes]
        function(np, *operands, **fixed, out=results[0] if is_single else tuple(results))
        for out, result in zip(outs, results, strict=True):
            _round_into(out.array, result)

    return launch


for _op in (ops.mm, ops.bmm, ops.addmm, ops.baddbmm, ops.linear, ops._linear_backward):
    prepares(_op, keys.CPU)(_prepare)
