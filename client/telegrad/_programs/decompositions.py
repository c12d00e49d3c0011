"""``torch._decomp``: which operators are computed by others. Here these are the programs of operations of the client.

The server has derivatives and kernels of all other operators itself, so that nothing has to be decomposed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from telegrad import ops
from telegrad._functions import composites

Table = dict[ops.Operator, Callable[..., Any]]


def core_aten_decompositions() -> Table:
    """Return the operators that the client computes by others, and the functions that do."""
    functions = {
        name: value
        for name, value in vars(composites).items()
        if isinstance(value, FunctionType) and value.__module__ == composites.__name__ and name[0] != "_"
    }
    return {getattr(ops.aten, name): functions[name] for name in sorted(functions)}


def get_decompositions(aten_ops: Iterable[ops.Operator], type: str = "post_autograd") -> Table:
    """Return those of `core_aten_decompositions` that are asked for."""
    wanted = set(aten_ops)
    return {operator: run for operator, run in core_aten_decompositions().items() if operator in wanted}
