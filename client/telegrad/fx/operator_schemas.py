"""Arguments of calls in a normal form: with their defaults, in the order of the signature."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

__all__ = ["ArgsKwargsPair", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    """Arguments of a call in a normal form."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, arg_types: Any = None,
    kwarg_types: Any = None, normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:  # fmt: skip
    """Return the arguments of a function with defaults; None where its signature is not known or does not take them."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    return _normalized(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:  # fmt: skip
    """Return the arguments of a submodule's ``forward`` with defaults; None where it does not take them."""
    try:
        submodule = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from error
    return _normalized(inspect.signature(submodule.forward), args, kwargs or {}, normalize_to_only_use_kwargs)


def _normalized(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], as_keywords: bool
) -> ArgsKwargsPair | None:
    parameters = signature.parameters.values()
    unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in unnamed for parameter in parameters):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    given = bound.arguments
    if not as_keywords:
        as_keywords = len(args) == 0
    positional = [] if as_keywords else list(given)[: len(args)]
    return ArgsKwargsPair(
        tuple([given[name] for name in positional]),
        {name: value for name, value in given.items() if name not in positional},
    )
