"""Modules that hold others, or parameters, in order or by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, overload

from telegrad._ops.operands.asserted_errors import AssertedTypeError
from telegrad._tensor.tensor import Tensor
from telegrad.nn._containers import as_parameter, description, pairs, position, text_key
from telegrad.nn._repr import indent
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .module import Module

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Ordered(Module):
    """Modules by number."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return list(self._modules.values())[position(index, len(self))]

    def _part(self, items: list[tuple[str, Any]]) -> Any:
        part = type(self)()
        part.extend(module for _, module in items)
        return part

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[position(index, len(self))], module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        chosen = names[index] if isinstance(index, slice) else [names[position(index, len(names))]]
        self._renumber([module for name, module in self._modules.items() if name not in chosen])

    def _renumber(self, modules: list[Any]) -> None:
        self._modules.clear()
        self._modules.update({str(i): module for i, module in enumerate(modules)})

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one of this number."""
        if not isinstance(module, Module):
            raise AssertedTypeError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take a module out."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Ordered):
    """Modules that are called one after the other, each with the result of the one before."""

    @overload
    def __init__(self, *args: Module) -> None: ...
    @overload
    def __init__(self, arg: Mapping[str, Module], /) -> None: ...
    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before the one of this number; raises IndexError where there is no such place."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        return super().insert(index, module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _part(self, items: list[tuple[str, Any]]) -> Sequential:
        return Sequential(dict(items))

    def __add__(self, other: Sequential) -> Sequential:
        _require_sequential("add", other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        _require_sequential("add", other)
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        _require_count(other)
        return Sequential(*(module for _ in range(other) for module in self))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Sequential:
        _require_count(other)
        own = list(self)
        for _ in range(other - 1):
            self.extend(own)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Add several modules at the end."""
        for module in sequential:
            self.append(module)
        return self


def _require_sequential(what: str, other: Any) -> None:
    if not isinstance(other, Sequential):
        raise ArgumentError(f"{what} operator supports only objects of Sequential class, but {type(other)} is given.")


def _require_count(count: Any) -> None:
    if not isinstance(count, int):
        raise ArgumentTypeError(f"unsupported operand type(s) for *: {type(Sequential())} and {type(count)}")
    if count <= 0:
        raise ArgumentError(f"Non-positive multiplication factor {count} for {Sequential}")


class Container(Module):
    """Modules by keyword; ``Module`` itself does as much."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class ModuleList(_Ordered):
    """A list of modules; their parameters are its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)  # type: ignore[no-any-return]

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """As a list; a run of modules that print alike is one line."""
        runs: list[tuple[int, int, str]] = []
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [f"({a}): {indent(t)}" if a == b else f"({a}-{b}): {b - a + 1} x {indent(t)}" for a, b, t in runs]
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


class ModuleDict(Module):
    """Modules by name; their parameters are its own."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules of a dictionary, or of pairs."""
        is_named = isinstance(modules, (Mapping, ModuleDict))
        for name, module in modules.items() if is_named else pairs("ModuleDict", modules):
            self[name] = module


class ParameterList(Module):
    """A list of parameters; tensors become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(() if values is None else values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ParameterList([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(position(index, len(self))), as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several parameters at the end."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            kind = type(values).__name__
            raise ArgumentTypeError(f"ParameterList.extend should be called with an iterable, but got {kind}")
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {description(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """Parameters by name; tensors become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        """Return what an attribute of this name is; raises AttributeError if there is none."""
        return getattr(self, text_key(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[text_key(key)] = None
        setattr(self, key, as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and parameters."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterator[Any]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> ParameterDict:
        made = ParameterDict(other.items())
        made.update(self)
        return made

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Return a dictionary of the same parameters."""
        return ParameterDict(self.items())

    def clear(self) -> None:
        """Take all parameters out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the parameter out that was added last, and return its name, too."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a parameter, or ``default`` if there is none of this name."""
        return getattr(self, key) if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return a parameter; add ``default`` if there is none of this name."""
        if key not in self:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return a dictionary of one value under several names."""
        return ParameterDict((key, default) for key in keys)

    def update(self, parameters: Any) -> None:
        """Add parameters of pairs, or of a dictionary: sorted by name, unless its order is meant, as in PyTorch."""
        is_named = hasattr(parameters, "items")
        entries = parameters.items() if is_named else pairs("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            entries = sorted(entries)
        for key, value in entries:
            self[key] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: there is nothing to compute."""
        raise RuntimeError("ParameterDict should not be called.")

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {description(value, by_type=True)}" for key, value in self.items())
