"""Which tensors that require gradients a function names besides its arguments: in its closure, globals and modules.

The function is not called: names and attributes are those that stand in its bytecode.
"""

from __future__ import annotations

import dis
from collections import ChainMap
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from telegrad._session.own_code import is_own
from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.container import ModuleDict, ModuleList
from telegrad.nn.modules.module import Module


class Item(NamedTuple):
    """A step from a container to one of its items."""

    key: Any


Chain = tuple[str, tuple[str | Item, ...]]
"""A name, and the attributes and items that are asked for, one of the other."""
_NAMES: Final = ("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_FAST")
_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD")


def tensors_named_by(functions: Iterable[Any]) -> list[Tensor]:
    """Return the tensors that require gradients and that these functions name, or those called by them, each once."""
    seen: dict[int, Any] = {}
    for function in functions:
        _note(function, seen)
    return [one for one in seen.values() if isinstance(one, Tensor) and one.requires_grad]


def _note(value: Any, seen: dict[int, Any]) -> None:
    """Note a value, and what is in it or named by it."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    for inner in _within(value):
        _note(inner, seen)


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, Module):
        return value.parameters()
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
        return _named(value.__func__, value.__self__)
    return _named(value) if isinstance(value, FunctionType) else ()


def _named(function: FunctionType, owner: Any = None) -> Iterator[Any]:
    """Give what stands behind the names and attributes of a function; ``owner`` is its first argument, if known."""
    code = function.__code__
    if is_own(code.co_filename):
        return
    cells = zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True)
    local = {**dict.fromkeys((*code.co_varnames, *code.co_cellvars)), **dict(cells)}
    local.update(dict.fromkeys(code.co_varnames[:1], owner))
    values = ChainMap(local, function.__globals__)
    for name, steps in _chains(code):
        yield _at(values.get(name), steps)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return None


def _at(value: Any, steps: Iterable[Any]) -> Any:
    """Return an attribute or item of another one, as far as tensors and what a property's function names."""
    for step in steps:
        if isinstance(value, Tensor):
            break
        if isinstance(step, Item):
            value = _item_of(value, step.key)
            continue
        computed = getattr(type(value), step, None)
        if isinstance(computed, property):
            return MethodType(computed.fget, value) if computed.fget is not None else None
        value = getattr(value, step, None)
    return value


def _item_of(value: Any, key: Any) -> Any:
    """Return an item of a container, which is not asked if it is of a class of the program's own."""
    if not isinstance(value, (ModuleList, ModuleDict)) and type(value) not in (list, tuple, dict):
        return value
    try:
        return value[key]
    except (LookupError, TypeError):
        return None


@lru_cache(maxsize=1024)
def _chains(code: CodeType) -> tuple[Chain, ...]:
    """Return the names that code and what is defined in it loads, with the steps from there."""
    chains: dict[Chain, None] = {}
    name = ""
    steps: tuple[str | Item, ...] = ()
    for one, following in pairwise(dis.get_instructions(code)):
        if name and one.opname.startswith(_ATTRIBUTES):
            steps += (one.argval,)
        elif name and one.opname in _CONSTANTS and _is_subscript(following):
            steps += (Item(one.argval),)
        elif not (steps and isinstance(steps[-1], Item) and _is_subscript(one)):
            chains[name, steps] = None
            name, steps = _name_of(one), ()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            chains.update(dict.fromkeys([one for one in _chains(constant) if one[0] not in constant.co_varnames]))
    return tuple(chains)


def _is_subscript(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"


def _name_of(instruction: dis.Instruction) -> str:
    """Return the name that an instruction loads, the last of several; empty for other instructions."""
    if not instruction.opname.startswith(_NAMES):
        return ""
    named = instruction.argval
    return str(named[-1] if isinstance(named, tuple) else named)
