"""The names of compilers that a program may give to ``torch.compile``: all but its own mean programs of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError

from .breaks import InvalidBackend

_DEBUG: Final = ("debug",)
_tags: Final[dict[str, tuple[str, ...]]] = {
    "inductor": (), "cudagraphs": (), "eager": _DEBUG, "eager_noexcept": _DEBUG, "eager_debug": _DEBUG,
    "aot_eager": _DEBUG, "aot_eager_decomp_partition": _DEBUG, "aot_eager_default_partitioner": _DEBUG,
    "pre_dispatch_eager": _DEBUG, "invoke_subgraph": _DEBUG,
}  # fmt: skip
"""Names with their tags: those of PyTorch's that need no further package, and those that a program has registered."""
_registered: Final[dict[str, Callable[..., Any]]] = {}


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Let ``compile`` take this name, that of the function unless given; without a function this is a decorator.

    Raises ArgumentError for a name that is taken.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    name = name or compiler_fn.__name__
    if name in _tags:
        raise ArgumentError(f"register_backend: duplicate name: {name}")
    _tags[name], _registered[name] = tuple(tags), compiler_fn
    return compiler_fn


def lookup_backend(compiler_fn: Any) -> Callable[..., Any]:
    """Return the function of a name, which makes one of a graph and its inputs; a function is returned as it is.

    Raises InvalidBackend for a name that there is not.
    """
    if not isinstance(compiler_fn, str):
        return compiler_fn  # type: ignore[no-any-return]
    require_known(compiler_fn)
    return _registered.get(compiler_fn, _forward_of)


def _forward_of(graph: Any, example_inputs: Any = ()) -> Any:
    """Return what calls a graph: each call of an operation goes to the server."""
    return graph.forward


def own_backend(backend: Any) -> Callable[..., Any] | None:
    """Return the program's own function that a backend is, or is the name of; None for those that come with telegrad.

    Raises InvalidBackend for a name that there is not.
    """
    if not isinstance(backend, str):
        return backend if callable(backend) else None
    require_known(backend)
    return _registered.get(backend)


def require_known(backend: Any) -> None:
    """Raise InvalidBackend for a name that there is not."""
    if isinstance(backend, str) and backend not in _tags:
        raise InvalidBackend(backend)


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The backends that a program may name, but for those with one of these tags."""
    excluded = frozenset(exclude_tags or ())
    return sorted([name for name, tags in _tags.items() if excluded.isdisjoint(tags)])
