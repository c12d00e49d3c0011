"""``torch._dynamo.callback``: functions that are told when a backend of the program's own is given a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final


class CompilationCallbackHandler:
    """Functions without arguments, called before and after a backend is given a graph."""

    def __init__(self) -> None:
        self.start_callbacks: list[Callable[..., Any]] = []
        self.end_callbacks: list[Callable[..., Any]] = []

    def register_start_callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call a function before each graph is given; returns it."""
        self.start_callbacks.append(callback)
        return callback

    def register_end_callback(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call a function after each graph was given; returns it."""
        self.end_callbacks.append(callback)
        return callback

    def remove_start_callback(self, callback: Callable[..., Any]) -> None:
        """Call a function no longer before graphs are given; ValueError where it was not registered."""
        self.start_callbacks.remove(callback)

    def remove_end_callback(self, callback: Callable[..., Any]) -> None:
        """Call a function no longer after graphs were given; ValueError where it was not registered."""
        self.end_callbacks.remove(callback)

    def clear(self) -> None:
        """Call none of the functions any longer that were registered."""
        self.start_callbacks.clear()
        self.end_callbacks.clear()

    @contextmanager
    def around(self, args: Any = None) -> Iterator[None]:
        """Call those of the start before the block, and those of the end after it."""
        for callback in self.start_callbacks:
            callback(args)
        try:
            yield
        finally:
            for callback in self.end_callbacks:
                callback(args)


callback_handler: Final = CompilationCallbackHandler()
on_compile_start: Final = callback_handler.register_start_callback
on_compile_end: Final = callback_handler.register_end_callback
