"""Chains of operations, optimised, beside plain execution and PyTorch: ``python -m benchmarks.programs [--threads 2]``.

Each chain is a function of the operations' names, which PyTorch and the engine share. It is timed in four ways in turn:
one dispatch after the other, as an executable of ``server.engine.programs``, by PyTorch's eager mode, and by
``torch.compile``, which needs a C++ compiler. Figures are ratios of times on the clock, for which the machine has to be
idle. They show the host's work alone: neither the wire nor a client takes part.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("TELEGRAD_COMPILED_KERNELS", "wait")

import torch

from server.engine import context, ops
from server.engine import functional as F
from server.engine.blas_threads import share_cores
from server.engine.context import Context
from server.engine.devices import open_device
from server.engine.programs.analysis import shared_memory
from server.engine.programs.expansion import traced
from server.engine.programs.graph import run
from server.engine.programs.specialise import specialise
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Meta

from .measure import Figure, about, figure, save

_ = ops  # registers all operations
ROUNDS = 9
_ROUND_SECONDS = 0.1
_SIZES = {"small": 64, "large": 2048}
_COLUMNS = 512


class Chain(NamedTuple):
    """A function of the namespace of operations and tensors, and the shapes of these for a number of rows."""

    function: Callable[..., Any]
    shapes: Callable[[int], list[tuple[int, ...]]]


def _gelu_tanh(f: Any, x: Any) -> Any:
    inner = f.mul(f.add(x, f.mul(f.mul(f.mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
    return f.mul(f.mul(x, 0.5), f.add(f.tanh(inner), 1.0))


def _layer_norm_tail(f: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    return f.add(f.mul(f.mul(f.sub(x, mean), rstd), weight), bias)


def _swiglu(f: Any, gate: Any, up: Any) -> Any:
    return f.mul(f.mul(gate, f.sigmoid(gate)), up)


def _adamw(f: Any, parameter: Any, grad: Any, average: Any, square: Any) -> Any:
    """One step, in place; the bias corrections are those of a later step."""
    parameter.mul_(1 - 1e-5)
    new_average = f.add(f.mul(average, 0.9), grad, alpha=0.1)
    new_square = f.addcmul(f.mul(square, 0.999), grad, grad, value=0.001)
    step = f.div(f.div(new_average, 0.65), f.add(f.sqrt(f.div(new_square, 0.01)), 1e-8))
    for target, result in ((average, new_average), (square, new_square)):
        target.copy_(result)
    parameter.copy_(f.sub(parameter, step, alpha=1e-3))


def _softmax(f: Any, x: Any) -> Any:
    power = f.exp(f.sub(x, f.amax(x, -1, True)))
    return f.div(power, f.sum(power, -1, True))


def _matrix(rows: int) -> tuple[int, ...]:
    return rows, _COLUMNS


CHAINS = {
    "gelu-tanh": Chain(_gelu_tanh, lambda rows: [_matrix(rows)]),
    "layer norm tail": Chain(
        _layer_norm_tail, lambda rows: [_matrix(rows), (rows, 1), (rows, 1), (_COLUMNS,), (_COLUMNS,)]
    ),
    "swiglu": Chain(_swiglu, lambda rows: [_matrix(rows)] * 2),
    "adamw": Chain(_adamw, lambda rows: [_matrix(rows)] * 4),
    "softmax": Chain(_softmax, lambda rows: [_matrix(rows)]),
}


def _ours(chain: Chain, tensors: list[torch.Tensor]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    """Plain and optimised execution, and how many kernels each has."""
    backend = open_device(CPU)
    values = [backend.empty(Meta.of(tuple(tensor.shape), dtypes.float32)) for tensor in tensors]
    for value, tensor in zip(values, tensors, strict=True):
        backend.fill_from_host(value, tensor.numpy())
    graph = traced(lambda *inputs: chain.function(F, *inputs), [value.meta for value in values])
    executable = specialise(graph, [value.meta for value in values], shared_memory(values))
    done = executable.describe()
    note = f"{done.kernels_before} kernels, {done.kernels_after} optimised"
    return lambda: run(graph, values), lambda: executable.run(values), note


def _compiled(chain: Chain, tensors: list[torch.Tensor]) -> Callable[[], Any] | None:
    function = torch.compile(lambda *inputs: chain.function(torch, *inputs))
    try:
        function(*tensors)
    except Exception as error:  # of whatever kind: there may be no C++ compiler
        print(f"torch.compile: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return None
    return lambda: function(*tensors)


def _measure(name: str, chain: Chain, rows: int) -> list[Figure]:
    tensors = [torch.rand(shape) for shape in chain.shapes(rows)]
    plain, optimised, note = _ours(chain, tensors)
    ways: dict[str, Callable[[], Any] | None] = {
        "plain": plain, "PyTorch": lambda: chain.function(torch, *tensors),
        "torch.compile": _compiled(chain, tensors), "optimised": optimised,
    }  # fmt: skip
    timed = {way: work for way, work in ways.items() if work is not None}
    counts = {way: max(1, int(_ROUND_SECONDS / _seconds(work, 3))) for way, work in timed.items()}
    rounds = [{way: _seconds(work, counts[way]) for way, work in timed.items()} for _ in range(ROUNDS)]
    medians = {way: sorted([one[way] for one in rounds])[ROUNDS // 2] * 1e6 for way in timed}
    figures = []
    for way in [way for way in timed if way != "optimised"]:
        baseline = f"optimised {medians['optimised']:.4g} us, {way} {medians[way]:.4g} us; {note}"
        ratios = [one["optimised"] / one[way] for one in rounds]
        figures.append(figure(f"{name}, optimised over {way}", "x", ratios, baseline=baseline, **medians))
    return figures


def _seconds(work: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begin) / count


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="threads of both")
    parser.add_argument("--only", default="", help="chains whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    wanted = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    if wanted.items() - os.environ.items():  # libraries read them when they are loaded
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.programs", *sys.argv[1:]], {**os.environ, **wanted}
        )
    share_cores()
    torch.set_num_threads(options.threads)
    context.activate(Context({CPU: open_device(CPU)}))
    figures: list[Figure] = []
    for name, chain in CHAINS.items():
        for size, rows in _SIZES.items() if options.only in name else ():
            for one in _measure(f"{name}, {size}", chain, rows):
                print(one.row(), flush=True)
                figures.append(one)
    if options.save:
        save(options.save, figures, **about("cpu"), threads=options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
