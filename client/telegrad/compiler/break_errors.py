"""``torch._dynamo.error_on_graph_break``: blocks in which graph breaks are errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .regions import active


class error_on_graph_break:
    """Graph breaks in a ``with`` block, or in calls of a function that this decorates, raise ``Unsupported``, or not.

    With ``False`` they do not in a part of such a block; with ``fullgraph=True`` they do anyway.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        self._is_error = bool(error_on_graph_break)
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(active.errors_on_breaks)
        active.errors_on_breaks = self._is_error

    def __exit__(self, *raised: object) -> None:
        active.errors_on_breaks = self._before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(self._is_error):
                return function(*args, **kwargs)

        return call
