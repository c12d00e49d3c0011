"""The named tuples that operations with several results return, such as ``return_types.sort`` with ``values, indices``.

They are made from the contracts, one for each public name; ``return_types.pyi`` tells type checkers of them.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from telegrad_protocol.ops import PUBLIC

TYPES: dict[str, Any] = {}


def _show(results: Any) -> str:
    """The tuple as PyTorch prints it, type name included."""
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(results._fields, results, strict=True))
    return f"torch.return_types.{type(results).__name__}(\n{lines})"


_UNNAMED = frozenset(("native_dropout", "std_mean", "var_mean"))
"""What gives plain tuples, as in PyTorch."""


def _make(public: str, fields: tuple[str, ...]) -> Any:
    result_type = namedtuple(public, fields, module=__name__)  # type: ignore[misc]
    result_type.__repr__ = _show  # type: ignore[method-assign]
    made_of_values = result_type.__new__

    def of_sequence(cls: Any, *values: Any, **named: Any) -> Any:
        """Take the values alone, or one sequence of them, and then an empty dict in pickles of PyTorch's."""
        is_sequence = len(fields) > 1 and isinstance(values[0] if values else None, (list, tuple))
        if is_sequence and (len(values) == 1 or values[1].__class__ is dict) and not named:
            values = values[0]
        return made_of_values(cls, *values, **named)

    result_type.__new__ = of_sequence  # type: ignore[assignment]
    result_type.n_fields = result_type.n_sequence_fields = len(fields)
    result_type.n_unnamed_fields = 0
    return result_type


for _public, _ops in PUBLIC.items():
    for _op in _ops:
        if _op.returns and _op.public == _public and _public not in TYPES and _public not in _UNNAMED:
            TYPES[_public] = _make(_public, _op.returns)

TYPES |= {
    "histogram": _make("histogram", ("hist", "bin_edges")),
    "histogramdd": _make("histogramdd", ("hist", "bin_edges")),
}

globals().update({name: kind for name, kind in TYPES.items() if not name.startswith("_")})
