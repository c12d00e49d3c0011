"""Matrix products beside PyTorch's on a GPU: ``python -m benchmarks.gemm [--only TEXT] [--save PATH]``.

Squares of 1,024 to 8,192, the products of GPT-2 small at 8 x 1,024 tokens, forward and backward, batches, bias and
GELU; float32 with and without TensorFloat-32, float16, bfloat16. Random numbers: zeros would run faster.

Operations are dispatched with their arguments bound, as a worker dispatches what it has decoded. On the smallest
products a kernel takes less time than the host to launch it, so there the host is what is compared.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from server.engine import context
from server.engine.devices import open_device
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from server.ipc.worker_environment import on_one_stack
from server.worker import garbage

from . import on_gpu
from .measure import Figure, about, figure, save_at

AT_LEAST = 0.97
REPEATS = 5
SQUARES = (1024, 2048, 4096, 8192)
TOKENS = 8192
GPT2_LAYERS = {"qkv": (768, 2304), "projection": (768, 768), "up": (768, 3072), "down": (3072, 768)}
VOCABULARY = 50257
Make = Callable[[torch.dtype], list[torch.Tensor]]
Ours = Callable[[tuple[Any, ...]], Any]


def _operation(name: str) -> Ours:
    return partial(dispatch, OPERATORS[name])


MM, T, LINEAR, LINEAR_BACKWARD, GELU = map(_operation, ("mm", "t", "linear", "_linear_backward", "gelu"))


class Case(NamedTuple):
    """One product: its operands, how both sides compute it, its multiplications."""

    name: str
    make: Make
    ours: Ours
    theirs: Callable[..., Any]
    products: float


def _normal(*shapes: tuple[int, ...]) -> Make:
    return lambda dtype: [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]


def _mm(name: str, m: int, k: int, n: int) -> Case:
    return Case(name, _normal((m, k), (k, n)), MM, torch.mm, m * k * n)


def _squares() -> Iterator[Case]:
    for n in SQUARES:
        yield _mm(f"{n} square", n, n, n)
    for n in SQUARES[:2]:
        yield Case(
            f"{n} square, both transposed", _normal((n, n), (n, n)), lambda ab: MM((T(ab[:1]), T(ab[1:]))),
            lambda a, b: a.t() @ b.t(), n**3,
        )  # fmt: skip


def _layers() -> Iterator[Case]:
    linear = torch.nn.functional.linear
    for name, (k, n) in GPT2_LAYERS.items():
        work = TOKENS * k * n
        yield Case(f"GPT-2 {name}, bias", _normal((8, 1024, k), (n, k), (n,)), LINEAR, linear, work)
        yield Case(
            f"GPT-2 {name}, backward", _normal((TOKENS, n), (TOKENS, k), (n, k)), _backward, _torch_backward, 2 * work
        )
    k, n = GPT2_LAYERS["up"]
    yield Case("GPT-2 up, bias and GELU", _normal((8, 1024, k), (n, k), (n,)), _gelu, _torch_gelu, TOKENS * k * n)
    logits = _normal((TOKENS, 768), (VOCABULARY, 768))
    yield Case("GPT-2 logits", logits, lambda factors: LINEAR((*factors, None)), linear, TOKENS * 768 * VOCABULARY)
    yield _mm("GPT-2 logits' input gradient", TOKENS, VOCABULARY, 768)


def _backward(values: tuple[Any, ...]) -> Any:
    return LINEAR_BACKWARD((*values, True))


def _torch_backward(grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor) -> Any:
    """What autograd runs for a linear layer."""
    return grad @ weight, grad.t() @ input, grad.sum(0)


def _gelu(values: tuple[Any, ...]) -> Any:
    return GELU((LINEAR(values), "tanh"))


def _torch_gelu(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    functional = torch.nn.functional
    return functional.gelu(functional.linear(input, weight, bias), approximate="tanh")


def _batches() -> Iterator[Case]:
    shapes = {"64 x 1024": (64, 1024, 1024, 1024), "96 x attention scores": (96, 1024, 64, 1024),
              "96 x attention values": (96, 1024, 1024, 64)}  # fmt: skip
    for name, (b, m, k, n) in shapes.items():
        yield Case(f"{name}, batched", _normal((b, m, k), (b, k, n)), _operation("bmm"), torch.bmm, b * m * k * n)
    yield Case(
        "64 x 1024, one factor for all",
        _normal((1, 1024, 1024), (64, 1024, 1024)),
        _operation("matmul"),
        torch.matmul,
        64 * 2.0**30,
    )
    yield Case("4096 matrix and vector", _normal((4096, 4096), (4096,)), _operation("mv"), torch.mv, 4096**2)
    yield Case("16 Mi dot", _normal((1 << 24,), (1 << 24,)), _operation("dot"), torch.dot, 1 << 24)


CASES = [*_squares(), *_layers(), *_batches()]
TYPES = {"fp32": torch.float32, "TF32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _compare(case: Case, label: str) -> Figure:
    torch.backends.cuda.matmul.allow_tf32 = label == "TF32"
    context.current.switches = context.current.switches.with_setting("allow_tf32", label == "TF32")
    tensors = case.make(TYPES[label])
    values = tuple([on_gpu.to_value(tensor) for tensor in tensors])
    found, expected = case.ours(values), case.theirs(*tensors)
    first = (found[0], expected[0]) if isinstance(found, tuple) else (found, expected)
    wanted = first[1].float().cpu()
    error = ((on_gpu.to_tensor(first[0]).float() - wanted).norm() / wanted.norm()).item()
    measured = on_gpu.compare(
        f"{label} {case.name}", lambda: case.ours(values), lambda: case.theirs(*tensors), at_least=AT_LEAST,
        repeats=REPEATS, relative_difference=error,
    )  # fmt: skip
    measured.extra["tflops"] = 2e-6 * case.products / measured.extra["telegrad_us"]
    measured.baseline += f", {measured.extra['tflops']:.1f} TFLOP/s, difference {error:.1e}"
    return measured


def _host_costs() -> list[Figure]:
    """Microseconds to queue one small product; no device time in it."""
    a, w, bias = (torch.randn(shape, device="cuda") for shape in ((64, 64), (64, 64), (64,)))
    x, y, z = map(on_gpu.to_value, (a, w, bias))
    linear = torch.nn.functional.linear
    return [
        _host_cost("mm", lambda: MM((x, y)), lambda: a @ w),
        _host_cost("linear with bias", lambda: LINEAR((x, y, z)), lambda: linear(a, w, bias)),
    ]


def _host_cost(name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Figure:
    samples: list[list[float]] = [[], []]
    device = open_device(on_gpu.GPU)
    device.allow_waiting()
    for _ in range(15):
        for run, into in zip((ours, theirs), samples, strict=True):
            device.synchronize()
            run()
            begin = time.perf_counter()
            for _ in range(200):
                run()
            device.flush()
            into.append((time.perf_counter() - begin) / 200 * 1e6)
    device.end_waiting()
    ratios = [b / a for a, b in zip(*samples, strict=True)]
    mine, reference = (sorted(s)[len(s) // 2] for s in samples)
    return figure(
        f"host cost of a small {name}", "x torch", ratios, at_least=1.0,
        baseline=f"telegrad {mine:.1f} us, PyTorch {reference:.1f} us", telegrad_us=mine, pytorch_us=reference,
    )  # fmt: skip


def run(only: str = "") -> list[Figure]:
    """One figure per case and precision whose name holds ``only``, and the host costs."""
    torch.manual_seed(0)
    on_gpu.open_gpu()
    context.current.grad_enabled = False
    chosen = [(case, label) for label in TYPES for case in CASES if only in f"{label} {case.name}"]
    with torch.no_grad():
        return [*_host_costs(), *[_compare(case, label) for case, label in chosen]]


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gemm", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--save", help="write the figures to this file")
    options = parser.parse_args()
    gc.freeze()  # as a worker does
    gc.set_threshold(*garbage.THRESHOLDS)
    figures = on_one_stack(partial(run, options.only))
    for each in figures:
        print(each.row(), flush=True)
    if options.save:
        save_at(options.save, figures, **about("cuda"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
