"""One overload of an operator and its kernels by dispatch key, of which a call selects one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from . import keys
from .binding import Binder
from .schemas.types import FunctionSchema


class Kernel(NamedTuple):
    """A function that computes an operator; ``takes_keys`` if the keys of the call are its first argument."""

    function: Callable[..., Any]
    takes_keys: bool = False
    source: str = ""


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    """Stand for no kernel: where it is registered, the next key is asked. It is never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def asked_of_python(*args: Any, **kwargs: Any) -> Any:
    """Stand for what answers the Python key, which ``dispatch`` calls with the overload. It is never called."""
    raise NotImplementedError("asked_of_python() should never be called.")


ASKS: Final = Kernel(asked_of_python)
FALLBACKS: Final[dict[int, list[Kernel]]] = {}
"""By key, the kernels that answer all operators which have none for that key; the last one registered counts."""
_EXPLICIT: Final = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
_IMPLICIT: Final = "CompositeImplicitAutograd"


class Operator:
    """One overload: its schema, its kernels, and what it is marked with.

    ``kernels`` has for each key all that were registered, of which the last one counts, so that the former returns when
    that one's library is destroyed.
    """

    asks_python = True
    """Whether modes and classes are asked of it here; of built-in operators they are where these run."""

    def __init__(
        self, schema: FunctionSchema, tags: tuple[Any, ...] = (), source: str = "", *, takes_numbers: bool = False
    ) -> None:
        self.schema = schema
        self.binder = Binder(schema, takes_numbers)
        self.tags = tags
        self.source = source
        self.kernels: dict[int, list[Kernel]] = {}
        self.fakes: list[Callable[..., Any]] = []
        """What computes the metas of results, the last one registered last."""
        self.dispatch_rules: dict[type, list[Callable[..., Any]]] = {}
        """What answers instead of a class' or mode's ``__torch_dispatch__``, by that class."""
        self._resolved: dict[int, tuple[Any, Kernel] | None] = {}
        self.plain_calls: Any = None
        """The ``plain_calls.PlainCalls`` of an operator that ``custom_op`` has defined."""
        self.plain_kernels: dict[int, Any] = {}
        """What these have selected, by the keys of a call."""

    @property
    def name(self) -> str:
        """Namespace, name and overload, such as ``aten::mul.Tensor``."""
        schema = self.schema
        return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name

    def register(self, key: Any, kernel: Kernel) -> None:
        """Have a kernel answer a key."""
        self.kernels.setdefault(key, []).append(kernel)
        self.forget()

    def unregister(self, key: Any, kernel: Kernel) -> None:
        """Take back a registration; the one before it answers again."""
        registered = self.kernels.get(key, [])
        registered[:] = [other for other in registered if other is not kernel]
        if not registered:
            self.kernels.pop(key, None)
        self.forget()

    def forget(self) -> None:
        """Drop what calls have selected."""
        self._resolved.clear()
        self.plain_kernels.clear()

    def has(self, *names: str) -> bool:
        """Whether a kernel is registered for one of these keys itself."""
        return any(keys.parse_key(name) in self.kernels for name in names)

    def select(self, of_call: int) -> tuple[Any, Kernel] | None:
        """Return the highest of a call's keys that has a kernel, and that kernel; None where there is none."""
        known: tuple[Any, Kernel] | None = self._resolved.get(of_call, _UNKNOWN)
        if known is _UNKNOWN:
            known = self._resolved[of_call] = self._selected(of_call)
        return known

    def _selected(self, of_call: int) -> tuple[Any, Kernel] | None:
        remaining = of_call
        while remaining:
            key = remaining.bit_length() - 1
            kernel = self.kernel_for(keys.DispatchKey(key))
            if kernel is not None and kernel.function is not fallthrough_kernel:
                return keys.DispatchKey(key), kernel
            remaining &= ~(1 << key)
        return None

    def kernel_for(self, key: Any) -> Kernel | None:
        """Return what answers a key, by itself, by an alias of several keys, or as a fallback; None if nothing does."""
        if key in self.kernels:
            return self.kernels[key][-1]
        if key is keys.DispatchKey.Python and self.asks_python:
            return ASKS
        is_autograd = bool(keys.AUTOGRAD >> key & 1)
        if key is keys.DispatchKey.Meta and self.fakes:
            return Kernel(self.fakes[-1])
        if not is_autograd and key < keys.DispatchKey.BackendSelect:
            for name in (*_EXPLICIT, _IMPLICIT):
                if self.has(name):
                    return self.kernels[keys.parse_key(name)][-1]
        if is_autograd:
            backend = key.name.removeprefix("Autograd")
            if self.has(_IMPLICIT) and not self.has(*_EXPLICIT, *((backend,) if keys.is_key(backend) else ())):
                return self.kernels[keys.parse_key(_IMPLICIT)][-1]
            if self.has("Autograd"):
                return self.kernels[keys.parse_key("Autograd")][-1]
        fallback = FALLBACKS.get(key)
        return fallback[-1] if fallback else None


_UNKNOWN: Final[Any] = object()
