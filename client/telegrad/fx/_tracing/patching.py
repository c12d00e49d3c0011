"""What is replaced while a function is traced, and put back afterwards."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Final

from .._mapping import leaves
from ..proxy import Proxy

_MISSING: Final = object()


class Patcher:
    """Replaces entries of namespaces and attributes of classes until the end of a block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._visited: set[int] = set()
        self._patched: set[tuple[int, str]] = set()

    def patch(self, names: dict[str, Any], name: str, replace: Callable[[Any], Any]) -> None:
        """Set an entry, or a builtin's name, to what ``replace`` makes of it; once."""
        if (id(names), name) in self._patched:
            return
        self._patched.add((id(names), name))
        before = names.get(name, _MISSING)
        self._undo.append(lambda: _restore(names, name, before))
        names[name] = replace(getattr(builtins, name) if before is _MISSING else before)

    def patch_method(self, kind: type, name: str, value: Any) -> None:
        """Set an attribute of a class until this patcher puts the old one back."""
        before = getattr(kind, name)
        self._undo.append(lambda: setattr(kind, name, before))
        setattr(kind, name, value)

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call a function at the end of the block."""
        self._undo.append(undo)

    def visit_once(self, names: dict[str, Any]) -> bool:
        """Whether this is the first time that a namespace is seen."""
        is_new = id(names) not in self._visited
        self._visited.add(id(names))
        return is_new

    def __enter__(self) -> Patcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()
        self._visited.clear()
        self._patched.clear()


def _restore(names: dict[str, Any], name: str, before: Any) -> None:
    if before is _MISSING:
        del names[name]
    else:
        names[name] = before


_current: list[Patcher] = []


@contextmanager
def new_patcher() -> Iterator[Patcher]:
    """Give a patcher that undoes everything at the end of the block."""
    with Patcher() as patcher:
        _current.append(patcher)
        try:
            yield patcher
        finally:
            _current.pop()


def recorded(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that records calls with proxies as calls of ``func``, and makes all others."""

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        proxy = next((leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Proxy)), None)
        if proxy is None:
            return func(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", func, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return run


def recorded_method(kind: type, name: str) -> Callable[..., Any]:
    """Return a method that records calls with proxies as calls of the method of this name."""
    method = getattr(kind, name)

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        proxy = next((leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Proxy)), None)
        return (
            method(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_method", name, args, kwargs)
        )

    return run
