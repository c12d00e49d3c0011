"""``Library``: definitions and kernels of one namespace, which are taken back together."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, OperatorError

from . import keys, overriding, registry
from .operator_entry import FALLBACKS, Kernel
from .overloads import OpOverload
from .schemas.tag_checks import check_inplace_schema, check_out_schema
from .schemas.tags import Tag, normalized
from .schemas.text import parse_schema

_KINDS: Final = ("IMPL", "DEF", "FRAGMENT")
_RESERVED: Final = frozenset(("prim",))
_DEFINED: Final[dict[str, str]] = {"aten": "PyTorch's own table of operators"}
"""Where the one library of kind DEF of each namespace was made."""
_REGISTERED: Final[set[tuple[str, str]]] = set()
"""Full names and keys for which a library has a kernel."""
_ALIVE: Final = object()
"""What ``m`` of a library is until it is destroyed."""
KEPT: Final[list[Library]] = []
"""Libraries that nobody destroys: those of functions that were given none."""


def _caller(depth: int) -> str:
    frame = sys._getframe(depth + 1)
    return f"registered at {frame.f_code.co_filename}:{frame.f_lineno}"


class Library:
    """Operators and kernels of a namespace, for as long as the library is there.

    ``kind``: ``DEF`` for the one library that makes a namespace, ``FRAGMENT`` to add operators to one, ``IMPL`` to give
    existing operators kernels, also those of ``aten``. ``dispatch_key`` is that of kernels for which none is named.
    What a library has registered is taken back when nobody holds it any more. Raises OperatorError for an unknown key,
    or a second DEF.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in _KINDS:
            raise ArgumentError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind != "IMPL":
            raise ArgumentError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        if dispatch_key:
            keys.parse_key(dispatch_key)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self.defined: list[OpOverload] = []
        self._undo: list[Callable[[], None]] = []
        self.m: object | None = _ALIVE
        self._source = _caller(1)
        if kind == "DEF":
            self._claim()
        weakref.finalize(self, _take_back, self._undo).atexit = False

    def _claim(self) -> None:
        if self.ns in _DEFINED:
            raise OperatorError(
                f"Only a single TORCH_LIBRARY can be used to register the namespace {self.ns}; please put all of your "
                "definitions in a single TORCH_LIBRARY block. If you really intended to define operators for a single "
                "namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to explicitly indicate this. "
                f"Previous registration of TORCH_LIBRARY was {_DEFINED[self.ns]}; latest registration was "
                f"{self._source}"
            )
        _DEFINED[self.ns] = self._source
        namespace = self.ns
        self._undo.append(partial(_release, namespace))

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def _require_alive(self) -> None:
        if self.m is None:
            raise OperatorError("Library object has been destroyed")

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define the operator of a schema such as ``scale(Tensor x, float by=1.0) -> Tensor``; return its name.

        Raises OperatorError where the text is no schema, or the overload is defined already.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise OperatorError(f"Invalid alias_analysis type {alias_analysis}")
        self._require_alive()
        if self.kind == "IMPL":
            raise OperatorError(
                f"define({schema}): Cannot define an operator inside of a TORCH_LIBRARY_IMPL block. All def()s should "
                "be placed in the (unique) TORCH_LIBRARY block for their namespace."
            )
        marks = normalized(tags)
        if Tag.out in marks:
            check_out_schema(parse_schema(schema))
        if Tag.inplace in marks:
            check_inplace_schema(parse_schema(schema))
        overload = registry.define(self.ns, schema, marks, self._source)
        self.defined.append(overload)
        self._undo.append(lambda: registry.forget(overload))
        return schema.partition("(")[0].strip()

    def impl(
        self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:  # fmt: skip
        """Have a function compute an operator, given by name or as an overload, where ``dispatch_key`` is selected.

        With ``with_keyset`` the keys of the call are its first argument. Without any key the function is composed of
        operators that have derivatives. Raises OperatorError for an unknown key.
        """
        if not callable(fn):
            raise ArgumentTypeError(f"Input function is required to be a callable but found type {type(fn)}")
        self._require_alive()
        qualname, name = self._full_name(op_name, "impl")
        key = dispatch_key or self.dispatch_key
        if not allow_override and (qualname, key) in _REGISTERED:
            raise OperatorError(
                "This is not allowed since there's already a kernel registered from python overriding "
                f"{name}'s behavior for {key} dispatch key and {self.ns} namespace."
            )
        parsed = keys.parse_key(key or "CompositeImplicitAutograd")
        kernel = Kernel(fn, with_keyset, self._source)
        registry.register(qualname, parsed, kernel)
        overriding.note(qualname)
        _REGISTERED.add((qualname, key))

        def undo() -> None:
            registry.unregister(qualname, parsed, kernel)
            overriding.release(qualname)
            _REGISTERED.discard((qualname, key))

        self._undo.append(undo)

    def _full_name(self, op_name: Any, api: str) -> tuple[str, str]:
        """Return the full name of an operator, and the name without its namespace."""
        if isinstance(op_name, OpOverload):
            op_name = op_name._name
        elif not isinstance(op_name, str):
            raise OperatorError(
                f"{api} should be passed either a name or an OpOverload object as the first argument, got "
                f"{type(op_name)}"
            )
        name = op_name.rpartition("::")[2].removesuffix(".default")
        namespace = op_name.partition("::")[0] if "::" in op_name else self.ns
        if namespace != self.ns:
            raise OperatorError(f"impl: {op_name} is not in the namespace of this library, {self.ns}")
        return f"{self.ns}::{name}", name

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Have a function answer a key for all operators that have no kernel for it. The namespace must be ``_``.

        With ``with_keyset`` it is given the keys, the overload, and the arguments; else the overload and these.
        """
        key = dispatch_key or self.dispatch_key
        if self.ns != "_":
            raise OperatorError(
                'Fallback can only be registered using library fragment on the global namespace "_" but it is '
                f"{self.ns}"
            )
        if not key:
            raise OperatorError("fallback: name the dispatch key")
        self._require_alive()
        parsed, kernel = keys.parse_key(key), Kernel(fn, with_keyset, self._source)
        FALLBACKS.setdefault(parsed, []).append(kernel)
        registry.forget_selected()

        def undo() -> None:
            FALLBACKS[parsed].remove(kernel)
            registry.forget_selected()

        self._undo.append(undo)

    def _register_fake(
        self, op_name: Any, fn: Callable[..., Any], _stacklevel: int = 1, *, allow_override: bool = True
    ) -> None:
        """Have a function tell the shapes and types of an operator's results."""
        qualname, _ = self._full_name(op_name, "register_fake")
        if registry.overload_of(qualname) is None:
            raise OperatorError(f"operator {qualname} does not exist: define it before its fake")
        if not allow_override and registry.has_fake(qualname):
            raise OperatorError(f"register_fake(...): the operator {qualname} already has a fake impl registered")
        registry.register_fake(qualname, fn)
        self._undo.append(lambda: registry.unregister_fake(qualname, fn))

    def _register_torch_dispatch_rule(self, op_name: Any, torch_dispatch_class: type, fn: Callable[..., Any]) -> None:
        """Have a function answer for a class or mode instead of its ``__torch_dispatch__``."""
        qualname, _ = self._full_name(op_name, "register_torch_dispatch")
        overload = registry.overload_of(qualname)
        if overload is None:
            raise OperatorError(f"register_torch_dispatch: {qualname} is not defined")
        rules = overload._operator.dispatch_rules.setdefault(torch_dispatch_class, [])
        rules.append(fn)
        self._undo.append(lambda: rules.remove(fn))

    def _destroy(self) -> None:
        """Take back all that the library has registered."""
        self.m = None
        self.defined.clear()
        _take_back(self._undo)


def _release(namespace: str) -> None:
    _DEFINED.pop(namespace, None)


def _take_back(undo: list[Callable[[], None]]) -> None:
    while undo:
        undo.pop()()


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """Make a library for a block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()
