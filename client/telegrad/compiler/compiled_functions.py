"""Makes compiled functions of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import regions
from .guarded.calls import Calls
from .originals import note_original, original_of


def compiled(function: Callable[..., Any], options: regions.Options) -> Callable[..., Any]:
    """Return a function that calls another one, or what that was made of, in regions."""
    function = original_of(function) or function
    calls = Calls()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return regions.run(function, args, kwargs, options, calls)

    note_original(call, function)
    return call
