"""What a rewritten function calls: it does what the function would have done, and notes what that depends on.

Calls are prepared here and made by the function itself, so that what looks at its caller, such as a logger, sees it.

Anything that may have an effect, or that reads what cannot be a condition, is done as well, and makes the call
*impure*: ``reason`` says what it was. A watcher serves one function; those of the functions called share its notes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from telegrad._native import ABSENT
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.originals import original_of
from telegrad.nn._hooks import GLOBAL
from telegrad.nn.modules.module import Module

from . import lookups, purity
from .arguments import Arguments
from .effects.acting import Acting
from .notes import Notes
from .rewriting import WATCHED, rewritten

_MOST_DEEP: Final = 64


class Watcher(Acting):
    """Stands for one function while it runs."""

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Return what makes a call of a function, a layer or a class; ``new`` is told what it gives."""
        if isinstance(function, Module):
            return self._call_layer(function, args, kwargs)
        if isinstance(function, MethodType):
            return self._call_method(function, args, kwargs)
        if isinstance(function, FunctionType):
            return self._call_function(function, args, kwargs)
        if isinstance(function, partial):
            return self._call_partial(function, args, kwargs)
        if function is getattr and 2 <= len(args) <= 3 and not kwargs:
            return partial(_identity, self._call_getattr(*args))
        if function is hasattr and len(args) == 2:
            return partial(_identity, self._call_hasattr(*args))
        return self._call_other(function, args, kwargs)

    def _call_partial(self, function: partial[Any], args: Any, kwargs: Any) -> Callable[[], Any]:
        self._notes.conditions.content(function.keywords)
        self._read_all((*function.args, *function.keywords.values()))
        return self.call(function.func, *function.args, *args, **{**function.keywords, **kwargs})

    def _call_getattr(self, owner: Any, name: str, *default: Any) -> Any:
        if default and self._runs_code(owner, name):
            return getattr(owner, name, *default)
        if default and not self._has(owner, name):
            return default[0]
        return self.attribute(owner, name)

    def _call_hasattr(self, owner: Any, name: str) -> bool:
        if self._runs_code(owner, name):
            return hasattr(owner, name)
        return self._has(owner, name) and (self.attribute(owner, name), True)[1]

    def _runs_code(self, owner: Any, name: str) -> bool:
        """Tell whether finding out about an attribute runs code, which is a reason not to leave the call out."""
        if isinstance(owner, type):
            runs = not lookups.is_usual_in_class(owner, name)
        elif isinstance(owner, ModuleType):
            runs = name not in vars(owner) and "__getattr__" in vars(owner)
        else:
            runs = lookups.runs_code(lookups.stored(type(owner), name)) or not (
                purity.is_plain(type(owner)) or lookups.is_usual(owner)
            )
        if runs:
            self._notes.refuse(f"whether there is {name}, which {type(owner).__name__} answers in its own way")
        return runs

    def _has(self, owner: Any, name: str) -> bool:
        """Tell whether there is an attribute; that there is none is a condition."""
        if hasattr(owner, name):
            return True
        if type(owner) in purity.CONSTANTS:
            return False
        if type(owner) in purity.TENSORS:
            self._notes.refuse(f"whether a tensor has the attribute {name}")
            return False
        self._notes.conditions.attribute(owner, name, ABSENT)
        return False

    def _call_layer(self, layer: Module, args: Any, kwargs: Any) -> Callable[[], Any]:
        if "_compile_options" in vars(layer) and self._require_no_hooks(layer):  # it calls what it was made of
            self._notes.conditions.entry(layer._modules, "_orig_mod", layer._modules["_orig_mod"])
            return self.call(layer._modules["_orig_mod"], *args, **kwargs)
        if type(layer).__call__ is not Module.__call__:
            return self.call(MethodType(type(layer).__call__, layer), *args, **kwargs)
        conditions = self._notes.conditions
        conditions.attribute(type(layer), "__call__", Module.__call__)
        if not self._require_no_hooks(layer):
            return partial(layer, *args, **kwargs)
        return self.call(self.attribute(layer, "forward"), *args, **kwargs)

    def _require_no_hooks(self, layer: Module) -> bool:
        """Make it a condition that there are no hooks, and tell whether there are none."""
        self._notes.conditions.entry(vars(layer), "_has_hooks", layer._has_hooks)
        self._notes.conditions.entry(vars(GLOBAL), "any", GLOBAL.look())
        if layer._has_hooks or GLOBAL.any:
            self._notes.refuse(f"hooks of {type(layer).__name__}")
            return False
        return True

    def _call_method(self, method: MethodType, args: Any, kwargs: Any) -> Callable[[], Any]:
        owner, function = method.__self__, method.__func__
        step = self._step_call(function, (owner, *args), kwargs)
        if step is not None:
            return step
        if type(owner) in purity.TENSORS and purity.is_tensor_method(function, function.__name__):
            return self._operation(method, args, kwargs)
        if purity.is_of_named_tuple(owner, function):
            return partial(method, *args, **kwargs)
        if isinstance(function, FunctionType) and not (isinstance(owner, Tensor) and purity.is_own(function)):
            return self._call_function(function, (owner, *args), kwargs)
        self._notes.refuse(f"a call of {getattr(function, '__qualname__', function)}")
        return partial(method, *args, **kwargs)

    def _call_function(self, function: FunctionType, args: Any, kwargs: Any) -> Callable[[], Any]:
        if WATCHED in function.__globals__:
            return partial(function, *args, **kwargs)
        original = original_of(function)
        if original is not None:
            self._notes.conditions.code(function)
            return self.call(original, *args, **kwargs)
        step = self._step_call(function, args, kwargs)
        if step is not None:
            return step
        if purity.is_operation(function):
            return self._operation(function, args, kwargs)
        notes = self._notes
        watcher = Watcher(function, notes, self._first, self._depth + 1)
        made = rewritten(function, watcher) if self._depth < _MOST_DEEP else None
        if made is None:
            notes.refuse(f"what {function.__qualname__} does")
            return partial(function, *args, **kwargs)
        notes.conditions.code(function)
        self._read_all((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        return partial(made, *args, **kwargs)

    def _operation(self, function: Any, args: Any, kwargs: Any) -> Callable[[], Any]:
        """Return what calls a function that runs operations on tensors and constants."""
        for value in (*args, *kwargs.values()):
            self._operand(value)
        if not (args or kwargs) and purity.tells_of_settings(function):
            self._notes.refuse(f"a call of {function.__qualname__}")
        return lambda: self._new_within(function(*args, **kwargs))

    def _new_within(self, result: Any) -> Any:
        """Note that lists in the list that an operation gives are made by it, too; such as tensors by device."""
        if type(result) in (list, tuple):
            for one in result:
                self._new_within(self.new(one))
        return result


def _identity(value: Any) -> Any:
    return value


def watched(function: Any, args: Any, kwargs: Any, given: Arguments, notes: Notes, first: int) -> Any:
    """Call a function, and note what the call depends on."""
    given.note_histories()
    notes.given = {id(container): container for container in given.containers}
    notes.given_tensors = given.tensors
    notes.arguments = frozenset([tensor._id for tensor in given.tensors])
    if given.has_others:
        notes.refuse("an argument of a class of its own")
    result = Watcher(_nothing, notes, first).call(function, *args, **kwargs)()
    notes.forget()
    return result


def _nothing() -> None:
    """Stands for the function that has called the one that is watched."""
