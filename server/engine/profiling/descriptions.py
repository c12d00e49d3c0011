"""What an event is of: an operation on operands of given metas, a node of the backward graph, or something named."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from server.engine.operators import Operator
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.tracing.recording import OPERATION, Descriptor

_LONGEST_LIST: Final = 256
"""Of a list of tensors so many are described."""
_LONGEST_TEXT: Final = 200


class Description:
    """Of events: their kind, their name, and of operations the operands. It is told to the client as a ``Descriptor``.

    ``device`` is the GPU whose launches are counted. ``target`` is the position of what an operation writes into,
    None where its results are new. ``without_operands`` describes the same operation on any operands of that device.
    """

    __slots__ = ("bound", "device", "kind", "name", "target", "without_operands")

    def __init__(
        self, kind: int, name: str, bound: tuple[Any, ...] = (), device: int = 0, plain: Description | None = None,
        target: int | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.name = name
        self.bound = bound
        self.device = device
        self.target = target
        self.without_operands = plain or self

    def with_numbers(self, numbers: Iterable[tuple[int, float]]) -> Description:
        """Return a description of the same operation with other numbers in these positions."""
        bound = list(self.bound)
        for position, number in numbers:
            bound[position] = number
        return Description(self.kind, self.name, tuple(bound), self.device, self.without_operands, self.target)

    def told(self) -> Descriptor:
        """Return it in the form that travels."""
        bound = self.bound
        return Descriptor(
            self.kind, self.name, shapes_of(bound), [_strides(item) for item in bound],
            [_dtype(item) for item in bound], [_concrete(item) for item in bound], self.device,
        )  # fmt: skip


def describe(operator: Operator, bound: tuple[Any, ...], gpu: Device | None) -> Description:
    """Return a new description of an operation on operands of these metas, and on this GPU if on any."""
    op, device = operator.op, 0 if gpu is None else gpu.index or 0
    return Description(OPERATION, op.name, bound, device, _plain(op.name, device), next(iter(op.mutates), None))


@cache
def _plain(name: str, device: int) -> Description:
    return Description(OPERATION, name, device=device)


def shapes_of(bound: tuple[Any, ...]) -> list[Any]:
    """Return the shapes of operands, [] for what is no tensor."""
    return [_shape(item) for item in bound]


def _is_list(item: Any) -> bool:
    return item.__class__ is tuple and any([isinstance(element, Meta) for element in item])


def _shape(item: Any) -> list[Any]:
    if item.__class__ is Meta:
        return list(item.shape)
    return [_shape(element) for element in item[:_LONGEST_LIST]] if _is_list(item) else []


def _strides(item: Any) -> list[Any]:
    if item.__class__ is Meta:
        return list(item.strides)
    return [_strides(element) for element in item[:_LONGEST_LIST]] if _is_list(item) else []


def _dtype(item: Any) -> str:
    if item.__class__ is Meta:
        return str(item.dtype.name)
    if _is_list(item):
        return "TensorList"
    if item.__class__ is tuple:
        return "ScalarList"
    return "Scalar" if isinstance(item, bool | int | float | complex) else ""


def _concrete(item: Any) -> str:
    if item is None or item.__class__ is Meta or _is_list(item):
        return ""
    return str(list(item) if item.__class__ is tuple else item)[:_LONGEST_TEXT]
