"""Leaves of a tree by the specification of another one; generated code calls it as ``fx_pytree``."""

from __future__ import annotations

from typing import Any

from telegrad.utils._pytree import SUPPORTED_NODES, TreeSpec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """Return the leaves of a tree in the order of a specification, which may have other sequences in its place."""
    if spec.is_leaf():
        return [pytree]
    return [
        leaf
        for spec_of_child, child in zip(spec.children(), _children(pytree, spec), strict=True)
        for leaf in tree_flatten_spec(child, spec_of_child)
    ]


def _children(pytree: Any, spec: TreeSpec) -> list[Any]:
    if spec.type in (list, tuple):
        return [pytree[index] for index in range(spec.num_children)]
    if spec.type is dict:
        return [pytree[key] for key in spec.context]
    children: list[Any] = SUPPORTED_NODES[spec.type].flatten_fn(pytree)[0]
    return children
