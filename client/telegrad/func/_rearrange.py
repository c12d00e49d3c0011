"""``rearrange``: dimensions permuted, joined and split as a pattern of names says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

_TOKEN = re.compile(r"\(|\)|\.\.\.|[A-Za-z_][A-Za-z0-9_]*|\d+|\S")
Groups = list[list[str]]


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Return a tensor, or a stack of tensors, with its dimensions arranged as in ``"b c (h w) -> (b h) w c"``.

    Names in parentheses are one dimension of which all but one must be known by ``axes_lengths``; ``...`` stands for
    any dimensions, ``1`` or ``()`` for one of size 1. Raises ArgumentError where pattern and shape do not fit.
    """
    given: Any = tensor if isinstance(tensor, Tensor) else function("stack")(list(tensor))
    left, arrow, right = pattern.partition("->")
    if not arrow:
        raise ArgumentError(f"rearrange: the pattern {pattern!r} has no '->'")
    inputs, outputs = _groups(left, pattern), _groups(right, pattern)
    inputs, outputs = _spread(inputs, outputs, given.dim(), pattern)
    names = [name for group in inputs for name in group]
    if sorted(names) != sorted(name for group in outputs for name in group):
        raise ArgumentError(f"rearrange: the two sides of {pattern!r} have different names")
    unknown = axes_lengths.keys() - set(names)
    if unknown:
        raise ArgumentError(f"rearrange: {sorted(unknown)} are no names of the pattern {pattern!r}")
    sizes = _sizes(inputs, tuple(given.shape), axes_lengths, pattern)
    split = given.reshape([sizes[name] for name in names])
    order = [names.index(name) for group in outputs for name in group]
    result: Tensor = split.permute(order) if order else split
    return result.reshape([math.prod([sizes[name] for name in group]) for group in outputs])


def _groups(side: str, pattern: str) -> Groups:
    """Return the dimensions of one side, each as a list of names; ``...`` is a dimension of that name."""
    groups: Groups = []
    inner: list[str] | None = None
    for token in _TOKEN.findall(side):
        if token == "(" and inner is None:
            inner = []
        elif token == ")" and inner is not None:
            groups.append(inner)
            inner = None
        elif token == "1":
            if inner is None:
                groups.append([])
        elif token == "..." or token.isidentifier():
            if inner is None:
                groups.append([token])
            else:
                inner.append(token)
        else:
            raise ArgumentError(f"rearrange: unexpected {token!r} in the pattern {pattern!r}")
    if inner is not None:
        raise ArgumentError(f"rearrange: a parenthesis is not closed in the pattern {pattern!r}")
    names = [name for group in groups for name in group]
    if len(set(names)) != len(names):
        raise ArgumentError(f"rearrange: a name comes twice on one side of {pattern!r}")
    return groups


def _spread(inputs: Groups, outputs: Groups, ndim: int, pattern: str) -> tuple[Groups, Groups]:
    """Put names in the place of ``...``, as many as there are dimensions left."""
    count = ndim - len(inputs) + 1 if ["..."] in inputs else 0
    if count < 0 or (not count and ["..."] not in inputs and len(inputs) != ndim):
        raise ArgumentError(f"rearrange: {ndim} dimensions do not fit the pattern {pattern!r}")
    others = [f"...{number}" for number in range(count)]
    at = inputs.index(["..."]) if ["..."] in inputs else len(inputs)
    spread_inputs = inputs[:at] + [[name] for name in others] + inputs[at + 1 :]
    spread_outputs: Groups = []
    for group in outputs:
        if group == ["..."]:
            spread_outputs.extend([name] for name in others)
        else:
            spread_outputs.append([part for name in group for part in (others if name == "..." else [name])])
    return spread_inputs, spread_outputs


def _sizes(inputs: Groups, shape: tuple[int, ...], known: dict[str, int], pattern: str) -> dict[str, int]:
    sizes = dict(known)
    for group, size in zip(inputs, shape, strict=True):
        missing = [name for name in group if name not in sizes]
        rest = math.prod([sizes[name] for name in group if name in sizes])
        if len(missing) == 1 and rest and size % rest == 0:
            sizes[missing[0]] = size // rest
        elif missing or rest != size:
            raise ArgumentError(
                f"rearrange: a dimension of size {size} does not divide into ({' '.join(group)}) of {pattern!r}; give "
                "the sizes of all but one of its names"
            )
    return sizes
