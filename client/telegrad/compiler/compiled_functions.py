"""Makes compiled functions of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import regions
from .guarded.calls import Calls
from .originals import note_original, original_of
from .own_backends import calling
from .own_backends.graphs import Graphs, OwnBackend


def compiled(
    function: Callable[..., Any], options: regions.Options, own: OwnBackend | None = None
) -> Callable[..., Any]:  # fmt: skip
    """Return a function that calls another one, or what that was made of, in regions, or by its own backend."""
    function = original_of(function) or function
    call = _with_own_backend(function, options, own) if own is not None else _in_regions(function, options)
    note_original(call, function)
    return call


def _in_regions(function: Callable[..., Any], options: regions.Options) -> Callable[..., Any]:
    calls = Calls()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return regions.run(function, args, kwargs, options, calls)

    return call


def _with_own_backend(
    function: Callable[..., Any], options: regions.Options, own: OwnBackend
) -> Callable[..., Any]:  # fmt: skip
    graphs = Graphs(own)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return calling.run(function, args, kwargs, options, graphs)

    return call
