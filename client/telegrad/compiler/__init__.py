"""``torch.compile`` and ``torch.compiler``: accepted, and what they are given runs eagerly.

A compiler saves launches and memory traffic. The server saves launches by itself: what a program repeats is recognised
there and launched as one graph (docs/replay.md). Programs that compile run, and are told so once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from telegrad._programs.notes import note_once
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError

from .config import Config
from .optimized_module import OptimizedModule

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends",
    "load_cache_artifacts", "nested_compile_region", "reset", "save_cache_artifacts", "set_default_backend",
    "set_enable_guard_collectives", "set_stance", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

config = Config("telegrad.compiler.config")
_default_backend: Any = "eager"


def compile(
    model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None, mode: str | None = None, options: dict[str, Any] | None = None,
    name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
    isolate_recompiles: bool = False, shapes_spec: Any = None,
) -> Any:  # fmt: skip
    """Return a function as it is, and a module as a module around it, whose state has PyTorch's prefix ``_orig_mod.``.

    Nothing is compiled, whatever the other arguments say, and a warning says so once. Without ``model`` this is a
    decorator.
    """
    if model is None:
        return compile
    if not callable(model):
        raise ArgumentTypeError(f"compile: expected a function or a module, not {type(model).__name__}")
    if not disable:
        note_once(
            "compile: nothing is compiled, the function or module runs eagerly; "
            "the server launches by itself as one graph what a program repeats"
        )
    if isinstance(model, Module) and not disable:
        return OptimizedModule(model)
    return model


def is_compiling() -> bool:
    """Whether the code that asks is being traced: it never is."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return the function as it is, or without one a decorator that does."""
    return _identity if fn is None else fn


def _identity(fn: Any) -> Any:
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Return the function as it is."""
    return fn


assume_constant_result = wrap_numpy = allow_in_graph


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Return the function as it is, or without one a decorator that does."""
    return _identity if fn is None else fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that returns functions as they are."""
    return _identity


def reset() -> None:
    """Do nothing: nothing is cached."""


def cudagraph_mark_step_begin() -> None:
    """Do nothing: results are never overwritten by the next step."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The backends that a program may name, which all mean to run eagerly."""
    return ["eager"]


def set_default_backend(backend: Any) -> None:
    """Note a backend, which ``get_default_backend`` returns."""
    global _default_backend
    _default_backend = backend or "eager"


def get_default_backend() -> Any:
    """What ``set_default_backend`` was given, ``eager`` at first."""
    return _default_backend


@contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Do nothing, as a block, a decorator or a call: every stance means to run eagerly."""
    yield


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Do nothing; return False, what it was."""
    return False


def save_cache_artifacts() -> None:
    """Nothing was compiled, so there is nothing to save: None."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Do nothing: None."""


def load_compiled_function(file: Any, **options: Any) -> NoReturn:
    """Refuse: nothing was compiled by telegrad, and what PyTorch has compiled runs in its own process."""
    raise NotSupportedError("load_compiled_function: telegrad runs no compiled functions; call the function itself")
