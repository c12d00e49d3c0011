"""How calls of functions are recorded: where PyTorch's function is written in Python, with all of its arguments."""

from __future__ import annotations

import inspect
from typing import Any, Final

from telegrad._ops.own_functions import originals

from .python_functions import IN_PYTHON
from .qualified_names import home_of

_OF_TORCH_IN_PYTHON: Final = frozenset(
    ["cdist", "meshgrid", "norm", "split", "stft", "tensordot", "unique", "unique_consecutive"]
)
"""Functions of ``torch`` that are."""
_EMPTY: Final = inspect.Parameter.empty


def as_recorded(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as PyTorch records them.

    Functions in Python ask their operands with all arguments: by position what has no default, else by keyword.
    """
    names = {"nn.functional": IN_PYTHON, "": _OF_TORCH_IN_PYTHON}.get(home_of(func) or "-", ())
    if func.__name__ == "einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])
    if func.__name__ not in names:
        return args, kwargs
    try:
        bound = inspect.signature(originals.get(func, func)).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    bound.apply_defaults()
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in bound.signature.parameters.items():
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.default is _EMPTY and parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return tuple(positional), named
