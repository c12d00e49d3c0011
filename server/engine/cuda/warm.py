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

from server.engine.array_library.dtypes import HALVES
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Meta

from .attention.hopper_kernel_text import BLOCKS, TILINGS
from .runtime.compiler import compile_cubin, is_kept
from .runtime.hopper_text import HOPPER
from .runtime.launch import architecture
from .texts import DEVICE, Call, call, texts_of

_NICENESS = 10
_TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
_UNARY = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",
    "neg", "sin", "cos", "isnan", "isfinite", "clone", "zeros_like", "ones_like",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
_BACKWARD = ("_relu_backward", "_gelu_backward", "_silu_backward", "_tanh_backward", "_sigmoid_backward")
_SHAPES = ((64, 64), (64, 64)), ((64, 64), (64,)), ((64, 64), (64, 1)), ((64, 64), ())


def usual_calls(dtype: DType) -> Iterator[Call]:
    """Operations by name, with metas for tensors."""

    def meta(*shape: int, dtype: DType = dtype, strides: tuple[int, ...] | None = None) -> Meta:
        return Meta.of(shape, dtype, DEVICE, strides)

    x = meta(64, 64)
    for name in _UNARY:
        yield call(name, x)
    for name in _BACKWARD:
        yield call(name, x, x)
    for name, (first, second) in itertools.product(_BINARY, _SHAPES):
        yield call(name, meta(*first), meta(*second))
    for name in ("add", "sub", "mul", "div", "pow", "eq", "gt", "lt"):
        yield call(name, x, 2.5)
    for name in ("add_", "mul_"):
        yield call(name, x, meta(64, 64))
        yield call(name, x, 0.5)
    for other in (*_TYPES, dtypes.int64, dtypes.bool_):
        yield call("copy_", x, meta(64, 64, dtype=other))
        yield call("copy_", meta(64, 64, dtype=other), x)
    yield call("_in_layout", meta(64, 64, strides=(1, 64)), (64, 1))
    yield call("where", meta(64, 64, dtype=dtypes.bool_), x, x)
    yield call("where", meta(64, 64, dtype=dtypes.bool_), x, 0.0)
    yield call("masked_fill", x, meta(64, 64, dtype=dtypes.bool_), 0.0)
    yield call("native_dropout", x, 0.1, True)
    yield call("native_dropout_backward", x, meta(64, 64, dtype=dtypes.bool_), 1.25)
    yield call("cat", (x, x), 0)
    yield call("cat", (x, x), 1)
    for name, given in {"normal_": (), "uniform_": (), "fill_": (1.0,), "zero_": ()}.items():
        yield call(name, x, *given)


def hopper_calls(dtype: DType) -> Iterator[Call]:
    """What has kernels of its own on Hopper, for halves."""
    for width in TILINGS:
        operand = Meta.of((BLOCKS, 1, 128, width), dtype, DEVICE)
        yield call("_attention", operand, operand, operand, None, True, 1.0, False)


def compile_all(texts: Iterable[tuple[str, tuple[str, ...]]], target: str) -> int:
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
        texts = texts_of(calls, target).texts
        count = compile_all(texts, target)
    except TelegradError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    print(f"{len(texts)} kernels are usual, {count} of them were compiled now, in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
