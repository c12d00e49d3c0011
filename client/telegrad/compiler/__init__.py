"""``torch.compile`` and ``torch.compiler``: what a compiled function sends, it sends as programs (docs/compile.md).

The function runs in Python in each call, so what it does there is what it does without ``compile``. What it queues on
the server is one instruction once it has been the same twice, and its shapes and numbers may change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from telegrad._session.current import thread_sessions
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError

from . import exporting, regions, reports
from .backends import list_backends as list_backends
from .backends import own_backend
from .compiled_functions import compiled
from .config import compiler_config as config
from .control_flow import cond as cond
from .control_flow import while_loop as while_loop
from .guarded.calls import Calls
from .optimized_module import OptimizedModule
from .originals import original_of
from .own_backends.calling import ForcedBackend
from .own_backends.graphs import OwnBackend

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_default_backend", "set_enable_guard_collectives", "set_stance",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_default_backend: Any = "inductor"


def compile(
    model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None, mode: str | None = None, options: dict[str, Any] | None = None,
    name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
    isolate_recompiles: bool = False, shapes_spec: Any = None, verify: bool = False,
) -> Any:  # fmt: skip
    """Return a function that does what ``model`` does, and sends what it queues as programs; a module for a module.

    Of a class, what its objects do when they are called is compiled, and it is returned.

    A module's state has PyTorch's prefix ``_orig_mod.``. With ``fullgraph`` a graph break raises ``Unsupported`` at its
    line, unless PyTorch has in one graph what waits there. A ``backend`` that is a function, or was registered, is
    given a graph of ``torch.fx`` and its inputs, and returns what computes it; ``dynamic`` and ``recompile_limit``
    tell when it is given another one. All other backends are the same: programs take shapes and numbers as they come.
    With the ``mode`` ``max-autotune``, or that in ``options``, a GPU measures ways to compute products before it
    captures a program. Where ``verify`` is true, or in ``options``, the server makes each run that is executed as one
    by instructions, too, and compares the results: ProgramMismatchError names the operation. Without ``model`` this
    is a decorator. Raises ArgumentError for a ``mode`` that PyTorch does not have, and InvalidBackend for the name of
    a backend that is none.
    """
    if mode is not None and mode not in _MODES:
        raise ArgumentError(f"compile: unrecognized mode={mode!r}; there are {', '.join(_MODES)}")
    if mode is not None and options:
        raise ArgumentError("compile: either mode or options can be given, not both")
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
            disable=disable, recompile_limit=recompile_limit, verify=verify,
        )  # fmt: skip
    if not callable(model):
        raise ArgumentTypeError(f"compile: expected a function or a module, not {type(model).__name__}")
    if disable or getattr(model, "_torchdynamo_disable", False):
        return model
    given = options or {}
    tunes = (mode or "").startswith("max-autotune") or bool(given.get("max_autotune"))
    chosen = regions.Options(fullgraph, verify or bool(given.get("verify")), tunes)
    function = own_backend(_default_backend if backend is None else backend)
    own = None
    if function is not None:
        told = {"mode": mode, "options": options}
        named = {name: value for name, value in told.items() if value is not None and value != "default"}
        function = functools.partial(function, **named) if named else function
        own = OwnBackend(function, dynamic, fullgraph, recompile_limit)
    if isinstance(model, Module):
        return OptimizedModule(model, chosen, own)
    if isinstance(model, type):
        return _with_calls(model, functools.partial(compiled, options=chosen, own=own))
    return compiled(model, chosen, own)


def _with_calls(cls: type[Any], changed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> type[Any]:
    """Have calls of a class's objects be calls of another function; returns the class."""
    name = "forward" if issubclass(cls, Module) else "__call__"
    if name in dir(cls):
        setattr(cls, name, changed(getattr(cls, name)))
    return cls


_MODES: Final = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")


def is_compiling() -> bool:
    """Whether the code that asks is called, directly or not, by a compiled function, or is being exported."""
    return regions.active.region is not None or exporting.state.is_active


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether the code that asks is being exported."""
    return exporting.state.is_active


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return a function that is not compiled, also where a compiled one calls it: that is a graph break there.

    With ``recursive=False`` it is the function as it was before it was compiled. Without ``fn`` this is a decorator.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)  # type: ignore[method-assign]
        return fn
    if isinstance(fn, type):
        return _with_calls(fn, functools.partial(disable, recursive=recursive, reason=reason))
    function = original_of(fn) or fn
    if not recursive:
        return function
    why = f"{getattr(function, '__qualname__', function)} is not to be compiled" + (f": {reason}" if reason else "")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return regions.run_disabled(function, args, kwargs, why)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


def allow_in_graph(fn: Any) -> Any:
    """Return the function as it is."""
    return fn


assume_constant_result = wrap_numpy = allow_in_graph


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Keep none of these conditions: what ``options={"guard_filter_fn": ...}`` takes, which is not called."""
    return [False] * len(guard_entries)


keep_portable_guards_unsafe = keep_tensor_guards_unsafe = skip_all_guards_unsafe
skip_guard_on_all_nn_modules_unsafe = skip_guard_on_globals_unsafe = skip_all_guards_unsafe
skip_guard_on_inbuilt_nn_modules_unsafe = skip_all_guards_unsafe


def _identity(fn: Any) -> Any:
    return fn


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Return the function as it is, or without one a decorator that does."""
    return _identity if fn is None else fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that returns functions as they are. Raises TypeError for what is no function."""
    if not callable(original_fn):
        raise ArgumentTypeError(f"substitute_in_graph expects a function but got {type(original_fn)!r}")
    return _identity


def reset() -> None:
    """Forget the programs of this thread's sessions, and what compiled functions have read; both are found anew."""
    Calls.forget_all()
    for session in thread_sessions():
        session.programs.forget()
    reports.forget()
    regions.active.epoch = object()


def cudagraph_mark_step_begin() -> None:
    """Do nothing: results are never overwritten by the next step."""


def set_default_backend(backend: Any) -> None:
    """Note a backend, which ``get_default_backend`` returns."""
    global _default_backend
    _default_backend = backend or "inductor"


def get_default_backend() -> Any:
    """What ``set_default_backend`` was given, ``inductor`` at first."""
    return _default_backend


class set_stance:
    """How compiled functions run from here on, or in a ``with`` block, or in calls of a function that this decorates.

    With ``"force_eager"`` they run as if they had not been compiled. The other stances are about compiling again: they
    tell whether a backend of the program's own is given another graph, and are the same as ``"default"`` for programs.
    ``force_backend`` is given the graphs of all of them.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:  # fmt: skip
        if stance not in _STANCES:
            raise ArgumentError(f"set_stance: unknown stance {stance!r}; there are {', '.join(_STANCES)}")
        if stance != "default" and force_backend is not None:
            raise ArgumentError(f"set_stance: force_backend goes with the stance 'default', not with {stance!r}")
        forced = None if force_backend is None else own_backend(force_backend)
        self._chosen = (int(stance == "force_eager"), stance, None if forced is None else ForcedBackend(forced))
        self._before = self._now()
        self._enter(self._chosen)

    @staticmethod
    def _now() -> tuple[int, str, Any]:
        return regions.active.disabled, regions.active.stance, regions.active.forced

    @staticmethod
    def _enter(chosen: tuple[int, str, Any]) -> None:
        regions.active.disabled, regions.active.stance, regions.active.forced = chosen

    def __enter__(self) -> None:
        self._enter(self._chosen)

    def __exit__(self, *raised: object) -> None:
        self._enter(self._before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._enter(self._before)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before = self._now()
            self._enter(self._chosen)
            try:
                return function(*args, **kwargs)
            finally:
                self._enter(before)

        return call


_STANCES: Final = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)  # fmt: skip


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Do nothing; return False, what it was."""
    return False


def save_cache_artifacts() -> None:
    """Programs are the session's, so there is nothing to save: None."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Do nothing: None."""


def load_compiled_function(file: Any, **options: Any) -> NoReturn:
    """Refuse: what PyTorch has compiled runs in its own process."""
    raise NotSupportedError("load_compiled_function: telegrad runs no compiled functions; call the function itself")
