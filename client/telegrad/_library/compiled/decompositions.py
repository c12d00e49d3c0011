"""``torch._decomp``: operators as compositions of simpler ones, for programs that look them up or call them.

The server has kernels and derivatives for all of them and decomposes nothing. ``composed`` has the compositions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import getmembers, isfunction
from typing import Any, Final, TypeAlias

from telegrad import ops

from ..overloads import OpOverload, OpOverloadPacket
from . import composed, composed_core

Table: TypeAlias = dict[OpOverload, Callable[..., Any]]
decomposition_table: Final[Table] = {}
"""By overload, the functions that a program has registered, and those of this module once they were asked for."""
pre_autograd_decomposition_table: Final[Table] = {}
meta_table: Final[Table] = {}
_TABLES: Final = {
    "post_autograd": decomposition_table, "pre_autograd": pre_autograd_decomposition_table, "meta": meta_table,
}  # fmt: skip
_own: Final[list[OpOverload]] = []


def _out_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the form of a composition that writes into ``out``."""

    def write(*args: Any, out: Any, **kwargs: Any) -> Any:
        return out.copy_(function(*args, **kwargs))

    return write


def _inplace_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the form of a composition that writes into its first argument."""

    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.copy_(function(self, *args, **kwargs))

    return write


def _fill() -> None:
    """Enter compositions, those of operators that are not core ones in the order of their names."""
    for name in ("gelu", "_softmax", "_log_softmax", "addmm"):
        decomposition_table.setdefault(getattr(ops.aten, name).default, getattr(composed_core, name))
    for name, function in getmembers(composed, isfunction):
        if function.__module__ != composed.__name__ or name.startswith("_"):
            continue
        packet: OpOverloadPacket = getattr(ops.aten, name)
        functional = [overload for overload in packet.overloads() if "out" not in overload]
        for overload in packet.overloads():
            if overload in functional[:1]:
                _enter(getattr(packet, overload), function)
            elif overload.endswith("out") and len(functional) == 1:
                _enter(getattr(packet, overload), _out_of(function))
        for overload in getattr(ops.aten, f"{name}_").overloads()[:1] if hasattr(ops.aten, f"{name}_") else ():
            _enter(getattr(getattr(ops.aten, f"{name}_"), overload), _inplace_of(function))


def _enter(overload: OpOverload, function: Callable[..., Any]) -> None:
    decomposition_table.setdefault(overload, function)
    _own.append(overload)


def core_aten_decompositions() -> Table:
    """Return the operators that are not among PyTorch's core ones and consist of these, with the functions that do."""
    if not _own:
        _fill()
    return {overload: decomposition_table[overload] for overload in _own}


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> Table:
    """Return the functions that compute these operators, or overloads of them, by others, as far as there are some."""
    core_aten_decompositions()
    table, found = _TABLES[type], {}
    for op in aten_ops:
        overloads = [getattr(op, name) for name in op.overloads()] if isinstance(op, OpOverloadPacket) else [op]
        found.update({overload: table[overload] for overload in overloads if overload in table})
    return found


def register_decomposition(
    aten_op: Any, registry: Table | None = None, *, type: str = "post_autograd", unsafe: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that registers a function as the composition of an operator, or of several."""
    table = _TABLES[type] if registry is None else registry

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            overloads = [getattr(op, name) for name in op.overloads()] if isinstance(op, OpOverloadPacket) else [op]
            table.update(dict.fromkeys(overloads, function))
        return function

    return register


def remove_decompositions(decompositions: Table, aten_ops: Iterable[Any]) -> None:
    """Remove operators from a table."""
    for op in aten_ops:
        overloads = [getattr(op, name) for name in op.overloads()] if isinstance(op, OpOverloadPacket) else [op]
        for overload in overloads:
            decompositions.pop(overload, None)
