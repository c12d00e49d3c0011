"""Names of a graph's inputs, as PyTorch's compiler gives them: by where the function has its tensors from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module

_NO_WORD = re.compile(r"\W+")


def names_of(function: Any, args: Any, kwargs: Any) -> dict[int, str]:
    """Return names by the ``id`` of a tensor: of those among arguments, and of a module, a closure or globals."""
    names: dict[int, str] = {}
    for name, tensor in (*_given(function, args, kwargs), *_of_module(function), *_around(function)):
        names.setdefault(id(tensor), f"{_NO_WORD.sub('_', name)}_")
    return names


def _given(function: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Tensor]]:
    called = function.forward if isinstance(function, Module) else function
    try:
        arguments = inspect.signature(called).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call itself will say so
        arguments = {f"arg{place}": value for place, value in enumerate(args)} | kwargs
    for name, value in arguments.items():
        yield from _within(f"L_{name}", value)


def _within(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _within(f"{name}_{place}", one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _within(f"{name}_{key}", one)


def _of_module(function: Any) -> Iterator[tuple[str, Tensor]]:
    owner = getattr(function, "__self__", function)
    if not isinstance(owner, Module):
        return
    for kind, named in (("parameters", owner.named_parameters()), ("buffers", owner.named_buffers())):
        for path, tensor in named:
            *modules, last = path.split(".")
            yield "_".join(["L_self", *[f"modules_{one}" for one in modules], kind, last]), tensor


def _around(function: Any) -> Iterator[tuple[str, Tensor]]:
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield from _within(f"L_{name}", cell.cell_contents)
        except ValueError:  # it has no value yet
            continue
    for name in code.co_names:
        yield from _within(f"G_{name}", function.__globals__.get(name))
