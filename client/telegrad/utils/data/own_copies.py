"""Copies of data sets for workers that are threads: what one worker changes no other sees, as with PyTorch's processes.

Objects of the program's and of packages' classes are copied, and what they hold in attributes and containers. Shared
are tensors, arrays, layers' parameters, what cannot be copied, such as open files, what says itself how it is pickled,
objects of Python's own library, such as locks, and elements of containers that have more than ``_MOST`` of them, since
to copy each sample of a large data set would take longer than to read it.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from random import Random
from types import MethodType, ModuleType
from typing import Any, Final

import numpy as np

from telegrad._tensor.tensor import Tensor

_MOST: Final = 256
_MAPPINGS: Final = (dict, OrderedDict, defaultdict)
_SEQUENCES: Final = (list, deque)
_STATES_OF_DRAWS: Final = (Random, np.random.Generator, np.random.RandomState)
_PICKLING: Final = [(name, getattr(object, name, None)) for name in ("__reduce__", "__reduce_ex__", "__getstate__")]
_IS_MADE_BY_PROGRAM: Final = 1 << 9
"""The flag of classes that were made while the program ran, none of Python's compiled ones."""
_LEAVES: Final = (Tensor, Enum, ModuleType, type)
_OURS: Final = tuple(f"{package}.{part}" for package in ("telegrad", "torch") for part in ("nn", "utils.data"))
"""Where classes of telegrad's are that data sets are made of, also under PyTorch's names."""


def own_copy(dataset: Any, *with_it: Any) -> tuple[Any, ...]:
    """Return a copy of a data set, and of what may refer to it, such as methods of its own that collate."""
    copies = _Copies(dataset)
    return tuple([copies.of(value) for value in (dataset, *with_it)])


class _Copies:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the copy of a value, the same one each time; the value itself where it is shared."""
        kind = type(value)
        if id(value) in self._made:
            return self._made[id(value)]
        if kind in _MAPPINGS or kind in _SEQUENCES:
            return self._container(value)
        if kind is tuple:
            return self._tuple(value)
        if kind is MethodType:
            return MethodType(value.__func__, self.of(value.__self__))
        if kind in _STATES_OF_DRAWS:
            return self._keep(value, copy.deepcopy(value))
        return self._object(value) if self._is_copied(value) else value

    def _keep(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = made
        return made

    def _container(self, value: Any) -> Any:
        made = self._keep(value, copy.copy(value))
        if len(made) <= _MOST:
            for place, element in list(made.items() if isinstance(made, dict) else enumerate(made)):
                made[place] = self.of(element)
        return made

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        copied = tuple([self.of(element) for element in value]) if len(value) <= _MOST else value
        return copied if any(one is not other for one, other in zip(copied, value, strict=True)) else value

    def _is_copied(self, value: Any) -> bool:
        kind = type(value)
        if isinstance(value, _LEAVES) or not hasattr(value, "__dict__") or not _is_of_program(kind):
            return False
        return value is self._dataset or not _says_how(kind)

    def _object(self, value: Any) -> Any:
        try:
            made = copy.copy(value)
        except Exception:  # such as a handle of a file, which is used together
            return self._keep(value, value)
        self._keep(value, made)
        if made is not value and type(made) is type(value):
            attributes = vars(made)
            for name, attribute in list(attributes.items()):
                attributes[name] = self.of(attribute)
        return made


def _is_of_program(kind: type) -> bool:
    """Whether a class is none of Python's, NumPy's or telegrad's own; those of data sets and layers count as well."""
    package = kind.__module__.partition(".")[0]
    if package in ("telegrad", "torch"):
        return kind.__module__.startswith(_OURS)
    if package == "builtins":  # also the classes of a text that is executed without the name of a module
        return bool(kind.__flags__ & _IS_MADE_BY_PROGRAM)
    return package != "numpy" and package not in sys.stdlib_module_names


def _says_how(kind: type) -> bool:
    """Whether a class has a way of its own to be copied or pickled."""
    return hasattr(kind, "__copy__") or any(getattr(kind, name, None) is not usual for name, usual in _PICKLING)
