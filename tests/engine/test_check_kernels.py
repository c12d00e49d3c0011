"""``make check-kernels``: it refuses texts that do not compile, and texts that nothing would compile."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import keys
from server.engine.cuda import check, families
from server.engine.cuda.pointwise import copying
from server.engine.cuda.reduce import calls as reduce_calls
from server.engine.cuda.reduce import reduce_text
from server.engine.cuda.sort import calls as sort_calls
from server.engine.cuda.texts import Call, call, tensor
from server.engine.operators import OPERATORS, Preparer
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .cuda_registrations import registrations, withdraw

_ = registrations
withdraw()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel cache of the test's own."""
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path / "kernels"))


def test_calls_reach_every_text_of_the_package() -> None:
    modules = families.import_families()
    assert check.unreached(modules, check.collect_all([*modules, *families.import_calls()])) == []


def test_every_kind_of_kernel_that_a_text_is_for_is_collected() -> None:
    families.import_families()
    collected = check.Collected(check.OLDEST)
    collected.collect([reduce_calls, sort_calls], (dtypes.float32,))
    reductions = {"sub_warp_rows", "misaligned_rows", "block_rows", "columns", "scan_rows", "scan_columns"}
    sorts = {"warp_sort", "block_radix_sort", "count_digits", "radix_pass", "select_rank", "best", "search"}
    for kernel in reductions | sorts:
        assert any(f"{kernel}<" in source.rpartition("extern")[2] for source, _ in collected.labels), kernel


def _module_with(calls: list[Call]) -> ModuleType:
    module = ModuleType("added")

    def check_calls(dtype: DType) -> Iterator[Call]:
        yield from calls

    module.check_calls = check_calls
    return module


def test_a_text_that_does_not_compile_is_named_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    families.import_families()
    broken = copying.PRELUDE + "__device__ int broken() { return undefined_name; }\n"
    monkeypatch.setattr(copying, "PRELUDE", broken)
    matrix, transposed = tensor(dtypes.float32, 64, 64), tensor(dtypes.float32, 64, 64, strides=(1, 64))
    collected = check.Collected(check.OLDEST)
    collected.collect([_module_with([call("copy_", matrix, transposed)])], (dtypes.float32,))
    (problem,) = check.compile_all([collected])
    assert "transposing (copy_(" in problem
    assert 'identifier "undefined_name" is undefined' in problem
    assert f"line {broken.count(chr(10))}: __device__ int broken()" in problem


def test_a_text_that_no_call_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_text, "ADDED", "__device__ int nobody_compiles_this() { return 0; }", raising=False)
    problems = check.unreached([reduce_text], [])
    assert "server.engine.cuda.reduce.reduce_text.ADDED: no compiled text contains this one" in problems


def test_a_load_that_no_call_reaches_is_refused() -> None:
    problems = check.unreached([copying], [])
    assert any("copying.py" in problem and "lead to this load" in problem for problem in problems)


def test_factories_of_other_modules_are_not_looked_at_where_one_is_asked_for() -> None:
    families.import_families()
    factories = [problem for problem in check.unreached([copying], []) if "lead to this factory" in problem]
    own = [problem for problem in factories if "pointwise.copying" in problem]
    assert 0 < len(own) < len(factories)
    found = check.unreached([copying], [], "pointwise.copying")
    assert [problem for problem in found if "lead to this factory" in problem] == own


def test_factories_are_asked_in_an_order_that_is_written_down() -> None:
    """The module that is asked first imports those that are asked after it: no order is the alphabet's."""
    families.import_families()
    for name, operator in OPERATORS.items():
        modules = [_module_of(preparer) for preparer in operator.preparers.get(keys.CUDA, [])]
        for first, second in pairwise(modules):
            assert first is second or second.__name__ in _imported(first), name


def _module_of(preparer: Preparer) -> ModuleType:
    factory: Any = preparer.factory
    return sys.modules[(factory.func if isinstance(factory, partial) else factory).__module__]


def _imported(module: ModuleType) -> set[str]:
    """The modules that a module imports, or imports something from."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            package = module.__name__.rsplit(".", node.level)[0] if node.level else ""
            base = ".".join(filter(None, (package, node.module)))
            found |= {base, *[f"{base}.{alias.name}" for alias in node.names]}
    return found
