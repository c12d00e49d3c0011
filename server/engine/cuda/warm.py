"""Compile the usual kernels beforehand: ``python -m server.engine.cuda.warm [--architecture sm_90]``.

What networks do most, in the types that they do it in, is asked of the same factories that plans ask; their texts are
compiled into the kernel cache by several processes. Needs the compiler, and a GPU only to tell the architecture.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from server.engine import keys, ops
from server.engine.array_library.dtypes import HALVES
from server.engine.operators import OPERATORS, Request
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op

from . import families
from .attention.hopper_kernel_text import BLOCKS, TILINGS
from .runtime.compiler import compile_cubin, is_kept
from .runtime.hopper_text import HOPPER
from .runtime.launch import Texts, architecture, collecting

_ = (ops, families)  # file all operations, and all factories

_NICENESS = 10
_DEVICE = Device("cuda:0")
_TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
_UNARY = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",
    "neg", "sin", "cos", "isnan", "isfinite", "clone", "zeros_like", "ones_like",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
_BACKWARD = ("_relu_backward", "_gelu_backward", "_silu_backward", "_tanh_backward", "_sigmoid_backward")
_SHAPES = ((64, 64), (64, 64)), ((64, 64), (64,)), ((64, 64), (64, 1)), ((64, 64), ())


class Described:
    """A device as factories see it, which has no memory."""

    key = keys.CUDA
    device = _DEVICE
    stream = 0


def usual_calls(dtype: DType) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Operations by name, with metas for tensors."""

    def meta(*shape: int, dtype: DType = dtype, strides: tuple[int, ...] | None = None) -> Meta:
        return Meta.of(shape, dtype, _DEVICE, strides)

    x = meta(64, 64)
    for name in _UNARY:
        yield name, (x,)
    for name in _BACKWARD:
        yield name, (x, x)
    for name, (first, second) in itertools.product(_BINARY, _SHAPES):
        yield name, (meta(*first), meta(*second))
    for name in ("add", "sub", "mul", "div", "pow", "eq", "gt", "lt"):
        yield name, (x, 2.5)
    for name in ("add_", "mul_"):
        yield name, (x, meta(64, 64))
        yield name, (x, 0.5)
    for other in (*_TYPES, dtypes.int64, dtypes.bool_):
        yield "copy_", (x, meta(64, 64, dtype=other))
        yield "copy_", (meta(64, 64, dtype=other), x)
    yield "_in_layout", (meta(64, 64, strides=(1, 64)), (64, 1))
    yield "where", (meta(64, 64, dtype=dtypes.bool_), x, x)
    yield "where", (meta(64, 64, dtype=dtypes.bool_), x, 0.0)
    yield "masked_fill", (x, meta(64, 64, dtype=dtypes.bool_), 0.0)
    yield "native_dropout", (x, 0.1, True)
    yield "native_dropout_backward", (x, meta(64, 64, dtype=dtypes.bool_), 1.25)
    yield "cat", ((x, x), 0)
    yield "cat", ((x, x), 1)
    for name, given in {"normal_": (), "uniform_": (), "fill_": (1.0,), "zero_": ()}.items():
        yield name, (x, *given)


def hopper_calls(dtype: DType) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What has kernels of its own on Hopper, for halves."""
    for width in TILINGS:
        operand = Meta.of((BLOCKS, 1, 128, width), dtype, _DEVICE)
        yield "_attention", (operand, operand, operand, None, True, 1.0, False)


def texts_of(calls: Iterable[tuple[str, tuple[Any, ...]]], target: str) -> Texts:
    """The sources that the factories of these calls would load for an architecture."""
    with collecting(target) as found:
        for name, args in calls:
            _ask(OPERATORS[name].op, args)
    return found


def _ask(op: Op, args: tuple[Any, ...]) -> None:
    bound = op.normalize(op.bind(args, {}), lambda item: isinstance(item, Meta))
    inferred = op.infer(bound)
    outs = inferred if isinstance(inferred, tuple) else (inferred,)
    base = bound[: len(op.base.params)]
    compute = op.base.compute_dtype(base) if op.promotion else None
    request = Request(op.base, Described(), base, () if op.form == "functional" and op.mutates else outs, compute)  # type: ignore[arg-type]
    for preparer in OPERATORS[op.name].preparers.get(keys.CUDA, []):
        if preparer.factory(request) is not None:
            return


def compile_all(texts: Texts, target: str) -> int:
    """Compile what is not on the disk yet; how many texts that were."""
    cold = [(source, options) for source, options in texts if not is_kept(source, target, options)]
    if cold:
        # The compiler takes one text at a time in each process; a child has no use for threads or devices of this one.
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
            for done in [pool.submit(compile_cubin, source, target, options) for source, options in cold]:
                done.result()
    return len(cold)


def main() -> int:
    """Compile, and say how many kernels took how long."""
    parser = argparse.ArgumentParser(prog="python -m server.engine.cuda.warm", description=__doc__)
    parser.add_argument("--architecture", help="such as sm_90; that of this machine's first GPU by default")
    parser.add_argument("--nice", action="store_true", help="leave the processor to others where they want it")
    options = parser.parse_args()
    if options.nice:
        os.nice(_NICENESS)
    begin = time.perf_counter()
    try:
        target = options.architecture or architecture(0)
        calls = [call for dtype in _TYPES for call in usual_calls(dtype)]
        if target == HOPPER:
            calls += [call for dtype in _TYPES if dtype in HALVES for call in hopper_calls(dtype)]
        texts = texts_of(calls, target)
        count = compile_all(texts, target)
    except TelegradError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    print(f"{len(texts)} kernels are usual, {count} of them were compiled now, in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
