"""Structures around inputs and outputs as JSON: tuples, lists and dicts of places, and of constants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from telegrad.utils._pytree import TreeSpec, tree_flatten
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported.arguments import encoded, number_of_dict
from telegrad_protocol.exported.sizes import Formula

_KINDS = {tuple: "tuple", list: "list"}


def described(structure: TreeSpec, leaves: Sequence[Any]) -> Any:
    """Return a structure as JSON; ``leaves`` are the numbers of tensors as ``Place``, and constants."""
    return _described(structure, iter(leaves))


class Place(int):
    """The place of a tensor among all inputs or outputs."""


def _described(structure: TreeSpec, leaves: Any) -> Any:
    if structure.is_leaf():
        leaf = next(leaves)
        if isinstance(leaf, Place):
            return {"tensor": int(leaf)}
        if leaf is None or isinstance(leaf, (bool, int, float, str, Formula)):
            return {"constant": encoded(leaf, lambda value: None)}
        raise ProgramError(
            f"export: a {type(leaf).__name__} among arguments or results cannot be written to a file; only tensors, "
            "numbers, texts and None can"
        )
    children = [_described(child, leaves) for child in structure.children()]
    if structure.type in (dict, OrderedDict):
        if not all([isinstance(key, str) for key in structure.context]):
            raise ProgramError("export: a dict among arguments or results must have texts for keys")
        return {"dict": dict(zip(structure.context, children, strict=True))}
    kind = _KINDS.get(structure.type)
    if kind is None:
        raise ProgramError(
            f"export: a {structure.type.__name__} among arguments or results cannot be written to a file; return a "
            "dict, a list or a tuple"
        )
    return {kind: children}


def skeleton(tree: Any) -> Any:
    """Return the structure that was described, with places and constants; ProgramError if it is malformed."""
    if isinstance(tree, dict) and len(tree) == 1:
        ((kind, inner),) = tree.items()
        if kind == "tensor" and type(inner) is int:
            return Place(inner)
        if kind == "constant" and (inner is None or isinstance(inner, (bool, int, float, str, dict))):
            return number_of_dict(inner) if isinstance(inner, dict) else inner
        if kind == "dict" and isinstance(inner, dict):
            return {key: skeleton(child) for key, child in inner.items()}
        if kind in ("tuple", "list") and isinstance(inner, list):
            children = [skeleton(child) for child in inner]
            return tuple(children) if kind == "tuple" else children
    raise ProgramError("the structure of the program's arguments or results is malformed")


def restored(tree: Any) -> tuple[TreeSpec, list[Any]]:
    """Return the structure that was described and its leaves: places, and constants."""
    leaves, structure = tree_flatten(skeleton(tree))
    return structure, leaves
