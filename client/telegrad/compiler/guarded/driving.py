"""Functions that have effects of their own, such as training steps: the layers that they call are left out.

Such a function runs in a form in which its calls, and nothing else, go through a driver. Knows nothing of programs.
"""

from __future__ import annotations

import ast
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

from telegrad._session.call_sites import stand_in
from telegrad._session.session import ClientSession
from telegrad.nn._hooks import GLOBAL
from telegrad.nn.modules.module import Module

from . import purity
from .inner_calls import InnerCalls
from .rewriting import WATCHED, told
from .situation import is_ordinary
from .sources import ABOUT_FRAMES, UNREADABLE, UnknownFormError, compiled, definition_of, is_mangled

_MOST_CODES: Final = 1024


class Driver:
    """Makes the calls of one compiled function, in one session."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._layers: WeakKeyDictionary[Module, InnerCalls] = WeakKeyDictionary()
        self._codes: dict[int, tuple[CodeType, CodeType | None]] = {}
        """By the id of a function's code, which is kept for it: the code in which calls come here."""
        self._cell = _cell(self)
        self._holder: Any = None

    @property
    def replayed(self) -> int:
        """How many calls of layers were left out."""
        return sum([calls.replayed for calls in self._layers.values()])

    def serves(self, session: ClientSession) -> bool:
        """Whether the calls of this session are what it makes."""
        return session is self._session

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call the compiled function, within its region."""
        self._holder = self._session.holder
        if isinstance(function, Module):
            called = self.callee(function.forward) if _is_called_plainly(function) else function
            return called(*args, **kwargs)
        return self.callee(function)(*args, **kwargs)

    def callee(self, function: Any) -> Any:
        """Return what a driven function calls instead of a function, from its own frame as ever."""
        kind = function.__class__
        if kind is FunctionType:
            code = self._code_of(function)
            return function if code is None else self._driven(function, code)
        if kind is MethodType and function.__func__.__class__ is FunctionType:
            code = self._code_of(function.__func__)
            return function if code is None else MethodType(self._driven(function.__func__, code), function.__self__)
        return partial(self._call_layer, function) if isinstance(function, Module) else function

    def _call_layer(self, layer: Module, /, *args: Any, **kwargs: Any) -> Any:
        session = self._session
        if not is_ordinary() or session.holder is None or session.holder is not self._holder:
            return layer(*args, **kwargs)
        calls = self._layers.get(layer)
        if calls is None:
            calls = self._layers[layer] = InnerCalls(session)
        return calls.made(layer, args, kwargs)

    def _code_of(self, function: FunctionType) -> CodeType | None:
        """Return the code in which a function's calls come here; None for telegrad's own, and where there is none."""
        original = function.__code__
        known = self._codes.get(id(original))
        if known is None:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            made = None if purity.is_own(function) else _driven_code(original)
            known = self._codes[id(original)] = original, made
        return known[1]

    def _driven(self, function: FunctionType, code: CodeType) -> FunctionType:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        cells[WATCHED] = self._cell
        closure = tuple([cells[name] for name in code.co_freevars])
        made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        made.__kwdefaults__ = function.__kwdefaults__
        return made


def _is_called_plainly(layer: Module) -> bool:
    """Whether calling a layer calls its ``forward``, and nothing else."""
    return type(layer).__call__ is Module.__call__ and not (layer._has_hooks or GLOBAL.look())


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


def _driven_code(code: CodeType) -> CodeType | None:
    """Return the code in which calls go through the driver; None for functions without source, or that need none."""
    try:
        definition = definition_of(code)
        definition.body = [_Calls(code.co_freevars).visit(one) for one in definition.body]
        made = compiled(definition, (WATCHED, *code.co_freevars), code.co_filename)
        stand_in(made, code)
        return made
    except UNREADABLE:
        return None


class _Calls(ast.NodeTransformer):
    """Lets the driver make the calls of a function."""

    def __init__(self, free: tuple[str, ...]) -> None:
        self._free = free

    def visit_Name(self, node: ast.Name) -> Any:
        if is_mangled(node.id) or node.id in ABOUT_FRAMES:
            raise UnknownFormError
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if is_mangled(node.attr):
            raise UnknownFormError
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            if "__class__" not in self._free:
                raise UnknownFormError
            return node
        node.func = told("callee", node.func, node.func)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.ClassDef, ast.Global, ast.Nonlocal)):
            raise UnknownFormError
        return super().generic_visit(node)
