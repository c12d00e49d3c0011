"""Names of a module's arguments: of its parameters, and of the leaves in what they are given."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from telegrad.utils._pytree import TreeSpec, tree_flatten_with_path


def parameters_of(module: Any, count: int) -> list[str]:
    """Return names for so many positional arguments; those of ``*args`` are numbered."""
    names: list[str] = []
    for parameter in inspect.signature(getattr(module, "forward", module)).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{place}" for place in range(count - len(names))]
        elif parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
    return names[:count]


def leaf_names(parameters: Sequence[str], structure: TreeSpec) -> list[str]:
    """Return a name for each leaf of the arguments: the parameter's, and the keys below it."""
    names = [""] * structure.num_leaves
    args, kwargs = structure.unflatten(range(structure.num_leaves))
    for name, value in [*zip(parameters, args, strict=True), *kwargs.items()]:
        for path, place in tree_flatten_with_path(value)[0]:
            names[place] = "_".join([name, *path_parts(path)])
    for place, name in enumerate(names):
        if name in names[:place]:
            names[place] = f"{name}_{place}"
    return names


def path_parts(path: Sequence[Any]) -> list[str]:
    """Return the keys that lead to a leaf as parts of a name."""
    return [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
