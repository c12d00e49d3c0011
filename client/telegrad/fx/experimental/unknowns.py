"""Numbers that elements decide: what ``item()`` reads, and how many results an operator such as ``nonzero`` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.fx.node import Node, has_side_effect
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import OperatorError

KEY: Final = "unknown"
"""Under this name the metadata of a node has which number it is, or has as a size."""
HALF: Final = 0.5
"""A number in floating point is taken to be an integer and a half, so that it is none that has to do with sizes."""
LENGTH: Final = "length"


class Known(NamedTuple):
    """Which number a node is: ``kind`` is "integer" or "float", or "length" for the size of its dimension ``dim``."""

    number: int
    kind: str
    dim: int = 0


class Unknowns:
    """What such numbers are taken to be in one trace, in the order in which it meets them.

    Those for which there is no value are the integers from ``start`` on; up to 1 all are ``start``.
    """

    def __init__(self, values: Sequence[int] = (), start: int = 3) -> None:
        self.values = list(values)
        self._start = start
        self.kinds: list[str] = []

    def meet(self, kind: str) -> tuple[int, int]:
        """Return the place of the next number, and what it is taken to be."""
        place = len(self.kinds)
        self.kinds.append(kind)
        if place == len(self.values):
            self.values.append(self._start + (place if self._start > 1 else 0))
        return place, self.values[place]


def _positions(x: Tensor, length: int) -> Tensor:
    return x.new_empty((length, x.dim()), dtype=int64)


def _repeated(x: Tensor, length: int, repeats: Any = None, dim: int | None = None, **options: Any) -> Tensor:
    shape = (length,) if dim is None else [length if at == dim % x.dim() else n for at, n in enumerate(x.shape)]
    return x.new_empty(shape)


def _counts(x: Tensor, length: int, weights: Any = None, minlength: int = 0) -> Tensor:
    return x.new_empty((length,), dtype=int64) if weights is None else weights.new_empty((length,))


def _unique_rows(rows: Tensor, length: int, *options: Any) -> tuple[Tensor, ...]:
    return tuple([rows.new_empty((size,), dtype=int64) for size in (length, rows.shape[0], length)])


RESULTS: Final[Mapping[str, Callable[..., Any]]] = {
    "aten::nonzero": _positions, "aten::argwhere": _positions,
    "aten::masked_select": lambda x, length, mask: x.new_empty((length,)),
    "aten::repeat_interleave.Tensor": lambda repeats, length, **options: repeats.new_empty((length,)),
    "aten::repeat_interleave.self_Tensor": _repeated, "aten::bincount": _counts,
    "telegrad::_unique_rows": _unique_rows,
}  # fmt: skip
"""What operators return that are given a length beside their first argument, by their names."""


def varying_dim(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the dimension of an operator's result that has the length which elements decide."""
    dim = kwargs.get("dim", args[2] if len(args) > 2 else None) if "repeat_interleave" in func.name() else None
    return 0 if dim is None else dim % args[0].dim()


def note(node: Node, known: Known) -> None:
    """Note which number a node is, or has as a size."""
    node.meta[KEY] = known


@has_side_effect
def require_range(number: Any, least: int | None, most: int | None) -> None:
    """Raise OperatorError for a number for which a graph was not traced: the function does something else there."""
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = [f"of at {name} {bound}" for name, bound in (("least", least), ("most", most)) if bound is not None]
        raise OperatorError(f"expected a number {' and '.join(bounds)}, for which the graph was traced, not {number}")
