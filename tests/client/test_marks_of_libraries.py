"""What libraries mark functions and types with for PyTorch's compilers, and ask of traces: as PyTorch answers it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._guards
import torch._jit_internal
from torch._subclasses.fake_tensor import FakeTensorMode

import telegrad
from telegrad._dispatch import fake_tensors
from telegrad._programs import tracing_state
from telegrad.jit import internal

_FORMS: Any = import_module("typing")
_ANNOTATIONS: list[Any] = [
    *(_FORMS.List[int], list[int], _FORMS.Tuple[int, str], tuple[int, ...], _FORMS.Dict[str, int], dict[str, int]),
    *(_FORMS.Optional[int], int | None, _FORMS.Union[int, str], int | str, _FORMS.Union[int, str, None]),
    *(_FORMS.Final[int], int, None, _FORMS.Optional[_FORMS.List[int]], tuple[()], _FORMS.Tuple[()]),
    *(_FORMS.List, _FORMS.Tuple, _FORMS.Dict, _FORMS.Final),
]


def _outcome(act: Callable[..., Any], *args: Any) -> Any:
    """What is returned, or the built-in types of what is raised."""
    try:
        return act(*args)
    except Exception as error:
        return type(error) if type(error).__module__ == "builtins" else type(error).__mro__[-3:]


@pytest.mark.parametrize("asked", ["is_tuple", "is_list", "is_dict", "is_union", "is_optional", "is_final"])
def test_types_are_told_apart_as_in_pytorch(asked: str) -> None:
    for annotation in _ANNOTATIONS:
        mine, other = (_outcome(getattr(m, asked), annotation) for m in (internal, torch._jit_internal))
        assert mine == other, annotation


def test_optional_must_say_what_it_contains() -> None:
    for module in (internal, torch._jit_internal):
        with pytest.raises(RuntimeError, match="Optional"):
            module.is_optional(_FORMS.Optional)


def _dispatched(module: Any) -> Callable[..., Any]:
    def both(x: Any, flag: bool = True) -> Any:
        """Say both."""
        return x, flag, "both"

    def one(x: Any, flag: bool = False) -> Any:
        return x, flag, "one"

    made: Callable[..., Any] = module.boolean_dispatch("flag", 1, False, both, one, "a.module", "pooled")
    assert one.__doc__ == "Say both."
    return made


def test_an_argument_decides_which_function_is_called() -> None:
    mine, other = (_dispatched(module) for module in (internal, torch._jit_internal))
    for name in ("__name__", "__module__", "__doc__"):
        assert getattr(mine, name) == getattr(other, name), name
    for args, kwargs in [((1,), {}), ((1, True), {}), ((1, False), {}), ((1,), {"flag": True}), ((), {"x": 2})]:
        assert mine(*args, **kwargs) == other(*args, **kwargs), (args, kwargs)
    assert mine(1, True)[-1] == "both" and mine(1)[-1] == "one"
    for module in (internal, torch._jit_internal):
        with pytest.raises(RuntimeError, match="docstring"):
            module.boolean_dispatch("flag", 0, True, mine, other, None, None)


@pytest.mark.parametrize("fakes, state, lib", [
    (FakeTensorMode, torch._guards, torch), (fake_tensors.FakeTensorMode, tracing_state, telegrad),
])  # fmt: skip
def test_the_mode_of_fake_tensors_is_found(tg: Any, fakes: Any, state: ModuleType, lib: Any) -> None:
    first, second = fakes(), fakes()
    plain = lib.zeros(2)
    mine, other = first.from_tensor(plain), second.from_tensor(plain)
    assert state.detect_fake_mode() is state.detect_fake_mode([plain, {"x": 1}]) is state.active_fake_mode() is None
    assert state.detect_fake_mode([plain, {"x": (mine, mine)}]) is first
    with pytest.raises(AssertionError, match="input 1"):
        state.detect_fake_mode([mine, other])
    with second:
        assert state.active_fake_mode() is state.detect_fake_mode() is state.detect_fake_mode(other) is second
        with pytest.raises(AssertionError, match="active"):
            state.detect_fake_mode(mine)
        with first:
            assert state.active_fake_mode() is first
    assert state.TracingContext.try_get() is state.CompileContext.try_get() is None
    assert state.CompileContext.current_compile_id() is state.CompileContext.current_trace_id() is None
    with pytest.raises(RuntimeError, match="TracingContext"):
        state.TracingContext.get()
