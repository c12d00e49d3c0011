"""Compile every CUDA text of the project without a GPU: ``make check-kernels``, ``python -m server.engine.cuda.check``.

Modules of kernel families say by ``check_calls(dtype)`` which calls need their texts, and by ``check_loads(dtype)``
they load what no call reaches. The texts are those that the factories ask for; NVRTC compiles them, and keeps them in
the kernel cache. A ``load``, a text or a factory that no call reaches is an error too. ``--only reduce.ptp`` looks at
the modules whose names have that in them.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import ModuleType
from typing import Any

from server.engine import keys
from server.engine.operators import OPERATORS, Preparer
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import TelegradError

from .families import import_calls, import_families
from .runtime.compiler import KernelCompilationError, compile_cubin
from .runtime.hopper_text import HOPPER
from .runtime.launch import Collection, collecting
from .texts import Call, ask_all

OLDEST = "sm_80"
"""The oldest architecture that is supported: what compiles for it compiles for later ones."""
_TYPES = (
    dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float64, dtypes.complex64, dtypes.int64, dtypes.bool_,
)  # fmt: skip
_HOPPER_FAMILY = ".attention."
"""The family with kernels that are for Hopper alone."""
_LIBRARY_MODULES = (
    "gemm.operations", "conv.cudnn", "conv.products", "attention.cudnn", "fourier.operations", "fourier.dense",
    "sparse.products", "recurrent.cudnn",
    "solver.cholesky", "solver.lu", "solver.systems", "solver.spectra",
)  # fmt: skip
"""Their factories run kernels of cuBLASLt, cuDNN, cuFFT, cuSOLVER and cuSPARSE, and have no texts of their own."""
_FAST = "--Ofast-compile=max"
"""Compiles in half the time, and the code is not to be run."""
_ERROR_LINE = re.compile(r"kernel\.cu\((\d+)\): error")

Text = tuple[str, tuple[str, ...]]


class Collected:
    """All texts for one architecture, what asked for each, and what was reached."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.labels: dict[Text, str] = {}
        self.sites: set[tuple[str, int]] = set()
        self.factories: set[Any] = set()

    def collect(self, modules: list[ModuleType], types: tuple[DType, ...]) -> None:
        """Make the calls of all modules for all types."""
        with collecting(self.target) as collection:
            for module in modules:
                for dtype in types:
                    self._make_calls(module, dtype, collection)
        self.sites |= collection.sites

    def _make_calls(self, module: ModuleType, dtype: DType, collection: Collection) -> None:
        if hasattr(module, "check_loads"):
            module.check_loads(dtype)
            self._label(collection, f"{module.__name__}: {dtype}")
        for call in module.check_calls(dtype) if hasattr(module, "check_calls") else ():
            try:
                self.factories.update(ask_all(call))
            except TelegradError:
                continue  # the operation does not take this type
            self._label(collection, _described(call))

    def _label(self, collection: Collection, label: str) -> None:
        texts = list(collection.texts.items())
        for text, name in texts[len(self.labels) :]:
            self.labels[text] = f"{name} ({label})"


def _described(call: Call) -> str:
    items = [*map(str, call.args), *[f"{name}={value}" for name, value in call.keywords.items()]]
    return f"{call.name}({', '.join(items)})"


def collect_all(modules: list[ModuleType]) -> list[Collected]:
    """All texts for the oldest architecture, and what is different for Hopper."""
    oldest, hopper = Collected(OLDEST), Collected(HOPPER)
    oldest.collect(modules, _TYPES)
    hopper.collect([module for module in modules if _HOPPER_FAMILY in module.__name__], _TYPES)
    hopper.labels = {text: label for text, label in hopper.labels.items() if text not in oldest.labels}
    return [oldest, hopper]


def unreached(modules: list[ModuleType], collected: list[Collected], only: str = "") -> list[str]:
    """What no call reaches: calls of ``load``, constants with CUDA text, factories with ``only`` in their names."""
    sites = set().union(*[one.sites for one in collected])
    sources = [source for one in collected for source, _ in one.labels]
    problems = [f"{where}: no check_calls lead to this load" for where in _unreached_loads(modules, sites)]
    for module in modules:
        for name, text in vars(module).items():
            if isinstance(text, str) and "__device__" in text and not any(text in source for source in sources):
                problems.append(f"{module.__name__}.{name}: no compiled text contains this one")
    asked = set().union(*[one.factories for one in collected])
    problems += [
        f"{where}: no check_calls lead to this factory" for where in _unreached_factories(asked) if only in where
    ]
    return problems


def _unreached_loads(modules: list[ModuleType], sites: set[tuple[str, int]]) -> Iterator[str]:
    for module in modules:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load":
                file = str(module.__file__)
                if not any((file, line) in sites for line in range(node.lineno, (node.end_lineno or 0) + 1)):
                    yield f"{file}:{node.lineno}"


def _unreached_factories(asked: set[Any]) -> Iterator[str]:
    seen: dict[str, bool] = {}
    for operator in OPERATORS.values():
        for preparer in operator.preparers.get(keys.CUDA, []):
            name = _factory_name(preparer)
            seen[name] = seen.get(name, False) or preparer.factory in asked
    for name, is_reached in seen.items():
        if not is_reached and not any(f".{module}." in name for module in _LIBRARY_MODULES):
            yield name


def _factory_name(preparer: Preparer) -> str:
    factory: Any = preparer.factory
    function = factory.func if isinstance(factory, partial) else factory
    return f"{function.__module__}.{function.__qualname__}"


def compile_one(source: str, target: str, options: tuple[str, ...]) -> str | None:
    """The compiler's complaint about a text, with the lines that it is about; None where it compiles."""
    try:
        compile_cubin(source, target, (*options, _FAST))
    except KernelCompilationError as error:
        lines = source.splitlines()
        numbers = sorted({int(number) for number in _ERROR_LINE.findall(str(error))})
        return "\n".join((str(error), *[f"line {n}: {lines[n - 1].strip()}" for n in numbers if n <= len(lines)]))
    return None


def compile_all(collected: list[Collected]) -> list[str]:
    """Compile all texts by as many processes as there are processors; the failures."""
    context = multiprocessing.get_context("fork")  # a child has no use for threads or devices of this process
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        pending = {
            pool.submit(compile_one, source, one.target, options): f"{label} for {one.target}"
            for one in collected
            for (source, options), label in one.labels.items()
        }
        results = [(label, future.result()) for future, label in pending.items()]
    return [f"{label}\n{problem}" for label, problem in results if problem is not None]


def main() -> int:
    """Compile everything, or what is asked for; print what failed, and say how many texts took how long."""
    parser = argparse.ArgumentParser(prog="python -m server.engine.cuda.check", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="NAME", help="look at modules alone whose names have this in them"
    )
    only: str = parser.parse_args().only
    begin = time.perf_counter()
    families = [module for module in import_families() if only in module.__name__]
    if not families:
        parser.error(f"no module of kernels has {only!r} in its name")
    collected = collect_all([*families, *[module for module in import_calls() if only in module.__name__]])
    problems = [*unreached(families, collected, only), *compile_all(collected)]
    for problem in problems:
        print(problem, file=sys.stderr)
    count, seconds = sum(len(one.labels) for one in collected), time.perf_counter() - begin
    print(f"{count} CUDA texts compiled for {OLDEST} and {HOPPER}, {len(problems)} problems, in {seconds:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
