"""What launching a kernel of the program's own costs the client: ``python -m benchmarks.launch_cost [--save NAME]``.

No GPU is needed: a session of this process on a simulated one compiles and loads the kernels, and then its transport
drops what it is given, so that only the client's work is left: the call, the encoding, and sending a batch. Triton's
own part of a launch, up to a launcher that does nothing, stands beside it: PyTorch pays that, and the driver's call.
Packages that are not installed are left out, and said.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import telegrad as tg
from telegrad._session.current import current_session
from tests.support.node import SimulatedHost

from .measure import Figure, figure, save, shown

_LAUNCHES = 200
_SAMPLES = 60
_TEXT = 'extern "C" __global__ void add(const float* x, const float* y, float* out, int n) { out[0] = x[0] + y[n]; }'


def _operands() -> tuple[Any, Any, Any]:
    x = tg.ones(1024, device="cuda")
    return x, tg.ones(1024, device="cuda"), tg.empty_like(x)


def _triton() -> Iterator[tuple[str, Callable[[], Any]]]:
    from . import triton_kernels as kernels

    x, y, out = _operands()
    add = kernels.add_kernel[(4,)]
    yield "triton add", lambda: add(x, y, out, 1024, BLOCK=256)
    yield "triton add, a function as its grid", lambda: kernels.add(x, y, out)
    a, b, c = (tg.ones(64, 64, device="cuda", dtype=tg.float16) for _ in range(3))
    yield "triton matmul, 12 arguments and 6 constants", lambda: kernels.matmul(a, b, c)
    yield "triton matmul, tuned", lambda: kernels.matmul(a, b, c, tuned=True)


def _numba() -> Iterator[tuple[str, Callable[[], Any]]]:
    from . import numba_kernels as kernels

    a, b, c = (tg.ones(64, 64, device="cuda") for _ in range(3))
    yield "numba matmul", lambda: kernels.matmul(a, b, c)


def _raw() -> Iterator[tuple[str, Callable[[], Any]]]:
    x, y, out = _operands()
    kernel = tg.cuda.RawKernel(_TEXT, "add")  # type: ignore[attr-defined]
    yield "CUDA text", lambda: kernel((4, 1, 1), (256, 1, 1), (x, y, out, 1023))


def _built_in() -> Iterator[tuple[str, Callable[[], Any]]]:
    x, y, out = _operands()
    yield "built-in add with out=", lambda: tg.add(x, y, out=out)


_SOURCES = {"": _built_in, "triton": _triton, "numba numba_cuda": _numba, "numpy": _raw}
"""What makes launches, by the packages that it needs: Numba's kernels for GPUs are in one of their own."""


def _microseconds(launch: Callable[[], Any]) -> list[float]:
    """Of one launch, in samples of many."""
    launch()
    tg.cuda.synchronize()
    transport: Any = current_session().transport
    send = transport.send_batch
    transport.send_batch = lambda body: None
    try:
        samples = []
        for _ in range(_SAMPLES + 5):
            begin = time.thread_time()
            for _ in range(_LAUNCHES):
                launch()
            samples.append((time.thread_time() - begin) / _LAUNCHES * 1e6)
        current_session().flush()
    finally:
        transport.send_batch = send
    return samples[5:]


def _triton_alone() -> list[float]:
    """Triton's own part, of a tensor that only has a type and an address, and a launcher that does nothing."""
    from . import triton_kernels as kernels

    class Address:
        dtype = tg.float32

        def data_ptr(self) -> int:
            return 512

    function, x = kernels.add_kernel, Address()
    compiled = function.warmup(x, x, x, 1024, BLOCK=256, grid=(1,))
    compiled._init_handles()
    compiled._run = lambda *arguments: None
    launch = function[(4,)]
    return _microseconds(lambda: launch(x, x, x, 1024, BLOCK=256))


def measured() -> Iterator[Figure]:
    """All figures."""
    for package, launches in _SOURCES.items():
        missing = next((name for name in package.split() if importlib.util.find_spec(name) is None), "")
        if missing:
            print(f"{missing} is not installed: {package.split()[0]} is left out")
            continue
        for name, launch in launches():
            yield figure(name, "us", _microseconds(launch))
        if package == "triton":
            yield figure("triton add, Triton's own part", "us", _triton_alone())


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch_cost", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    with tg.connect(in_process=SimulatedHost()):
        figures = shown(measured())
    if options.save:
        save(options.save, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
