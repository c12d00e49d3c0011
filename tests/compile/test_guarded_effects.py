"""What calls leave behind is what the function leaves: histories, modes, and what it shows of who calls it."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from .harness import exactly

CALLS = 14


@pytest.fixture(autouse=True)
def _modes(tg: Any) -> Iterator[None]:
    yield
    tg.set_grad_enabled(True)


def _same(outcomes: Callable[[Callable[[Any], Any]], Any], tg: Any) -> None:
    """Require that a program gives the same with and without ``compile``."""
    assert outcomes(tg.compile) == outcomes(lambda function: function)


def test_histories_of_kept_tensors_go_on(tg: Any) -> None:
    def gradients(wrap: Callable[[Any], Any]) -> Any:
        weight = tg.linspace(1, 2, 4).requires_grad_()
        total = weight * 1

        def function(x: Any) -> Any:
            total.add_(x * weight)
            return (total * 2).sum() + x.sum()

        called = wrap(function)
        inputs = [(tg.linspace(-1, 1, 4) + number).requires_grad_() for number in range(CALLS)]
        results = [called(x) for x in inputs]
        results[-1].backward()
        return [exactly(tg, one) for one in (*results, weight.grad, *[x.grad for x in inputs])]

    _same(gradients, tg)


@pytest.mark.parametrize("writes_view", [True, False])
def test_writes_change_the_histories_of_views(tg: Any, writes_view: bool) -> None:
    weight = tg.linspace(1, 2, 4).requires_grad_()

    def function(x: Any) -> Any:
        x.mul_(weight)
        return x * 2 + x.sin()

    def gradients(wrap: Callable[[Any], Any]) -> Any:
        called, told = wrap(function), []
        for number in range(CALLS):
            base = tg.linspace(-1, 1, 4) + number
            view = base[:]
            written, other = (view, base) if writes_view else (base, view)
            result = called(written)
            (gradient,) = tg.autograd.grad(result.sum() + other.sum(), weight)
            told.append([exactly(tg, one) for one in (result, other, gradient)])
        return told

    _same(gradients, tg)


def test_modes_that_a_call_sets_stay_set(tg: Any) -> None:
    def function(x: Any) -> Any:
        tg.set_grad_enabled(False)
        return x * 2 + x.sin() - x.cos()

    def modes(wrap: Callable[[Any], Any]) -> Any:
        called, told = wrap(function), []
        for _ in range(CALLS):
            tg.set_grad_enabled(True)
            told += [called(tg.ones(3).requires_grad_()).requires_grad, tg.is_grad_enabled()]
        return told

    _same(modes, tg)


def _caller() -> str:
    return sys._getframe(1).f_code.co_name


def _warn() -> None:
    warnings.warn("deprecated", UserWarning, stacklevel=2)


def test_who_calls_is_who_calls_without_compile(tg: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Loggers and warnings name lines of the program, in calls that are watched and in functions with effects, too."""
    logger, layer = logging.getLogger("program"), tg.nn.Linear(4, 4)

    def told(wrap: Callable[[Any], Any]) -> Any:
        names: list[str] = []

        def step(x: Any) -> Any:
            names.append(_caller())
            _warn()
            logger.warning("called")
            return layer(x) * 2 + x.sin()

        called = wrap(step)
        caplog.clear()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(CALLS):
                called(tg.ones(3, 4))
        places = [(one.filename, one.lineno) for one in seen if one.category is UserWarning]
        return names, places, [(one.funcName, one.lineno, one.pathname) for one in caplog.records]

    _same(told, tg)


def _imported(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("effect", ["", "    kept.count += 1\n"], ids=["without effects", "with effects"])
def test_what_was_imported_runs_though_its_file_was_edited(
    tg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path, text = tmp_path / "edited.py", f"def function(x, kept):\n{effect}    return x * 2 + x.sin() - x.cos()\n"
    path.write_text(text)
    function = _imported(path, "edited").function
    path.write_text(text.replace("x * 2", "x * 777"))
    os.utime(path, (1, 1))
    kept = SimpleNamespace(count=0)
    _same(lambda wrap: [exactly(tg, wrap(function)(x, kept)) for x in [tg.ones(3)] * CALLS], tg)
    compiled, x = tg.compile(function), tg.ones(3)
    results = [exactly(tg, compiled(x, kept)) for _ in range(CALLS)]
    assert results == [exactly(tg, function(x, kept))] * CALLS


def test_hooks_of_a_compiled_module_are_called(tg: Any) -> None:
    module = tg.compile(tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.ReLU()))
    outer = tg.compile(lambda x: module(x) * 2 + x.sin())
    called: list[str] = []
    x = tg.ones(3, 4)
    for _ in range(CALLS):
        expected = outer(x)
    hooks = [
        module.register_forward_pre_hook(lambda owner, args: called.append(type(owner).__name__)),
        module.register_forward_hook(lambda owner, args, result: result + 1),
    ]
    assert _close(tg, module(x), module._orig_mod(x) + 1)
    assert _close(tg, outer(x), expected + 2)
    assert called == ["OptimizedModule"] * 2
    for hook in hooks:
        hook.remove()
    assert exactly(tg, outer(x)) == exactly(tg, expected)


def _close(tg: Any, one: Any, other: Any) -> bool:
    return bool(tg.allclose(one, other))


def test_a_compiled_module_is_in_training_where_its_module_is(tg: Any) -> None:
    module = tg.nn.Dropout(0.5)
    compiled = tg.compile(module)
    compiled.eval()
    assert (module.training, compiled.training) == (False, False)
    module.train()
    assert (module.training, compiled.training) == (True, True)
    compiled.train(False)
    assert (module.training, compiled.training) == (False, False)


def test_functions_are_mapped_within(tg: Any) -> None:
    """A tensor within ``vmap`` has no number that a watcher could note."""

    def function(x: Any) -> Any:
        def mapped(row: Any) -> Any:
            return (row * 2).sin() + row.sum()

        return tg.vmap(mapped)(x) - tg.func.grad(lambda y: (y.sin() * y).sum())(x)

    _same(lambda wrap: [exactly(tg, call(tg.ones(2, 4) * 0.1)) for call in [wrap(function)] * CALLS], tg)
