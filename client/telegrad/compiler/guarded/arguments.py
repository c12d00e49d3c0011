"""What a call of a compiled function is given, in a form that is compared with what another one was given."""

from __future__ import annotations

from typing import Any
from weakref import ref

from telegrad._tensor.autograd_graph import OperationNode
from telegrad._tensor.tensor import Tensor

from . import purity


def operation_of(tensor: Tensor) -> OperationNode | None:
    """Return the node of the operation that has computed a tensor; None for one without a history."""
    if tensor._aliases is not None:
        tensor._refresh()
    return tensor._node if isinstance(tensor._node, OperationNode) else None


class Arguments:
    """The tensors among arguments, and ``form``: all that is no tensor, with the places of tensors in it.

    Tensors are compared by how they lie, constants by value, containers by their content, and other objects by
    identity, for which they are referred to weakly. Tensors of other classes, such as sparse ones, are such objects.
    """

    __slots__ = ("_given", "_metas", "_names", "_nodes", "_objects", "containers", "form", "has_others", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._given, self._names = (*args, *kwargs.values()), tuple(kwargs)
        self.tensors: list[Tensor] = []
        self.containers: list[Any] = []
        self._objects: list[Any] = []
        self.has_others = False
        """Whether a tensor of another class is among them."""
        self.form: list[Any] = []
        for value in args:
            self._add(value)
        for name, value in kwargs.items():
            self.form.append(name)
            self._add(value)
        self._metas = _metas_of(self.tensors)
        self._nodes: list[Any] | None = None

    def note_histories(self) -> None:
        """Note the histories of tensors, before a call that may change them."""
        self._nodes = [operation_of(tensor) for tensor in self.tensors]

    def are_unchanged(self) -> bool:
        """Whether the tensors lie and are differentiated as they were when they were given."""
        nodes = [operation_of(tensor) for tensor in self.tensors]
        same = self._nodes is not None and all([a is b for a, b in zip(nodes, self._nodes)])
        return same and self._metas == _metas_of(self.tensors)

    def _add(self, value: Any) -> None:
        kind = value.__class__
        form = self.form
        form.append(kind)
        if kind in purity.TENSORS:
            if value._aliases is not None:
                value._refresh()
            self.tensors.append(value)
        elif kind in purity.CONSTANTS:
            form.append(repr(value) if value.__class__ is complex or (value == 0 and kind is float) else value)
        elif kind in (list, tuple, dict) or purity.is_named_tuple(kind):
            form.append(len(value))
            self.containers.append(value)
            for one in value.items() if kind is dict else value:
                self._add(one)
        else:
            form.append(id(value))
            self._objects.append(value)
            self.has_others = self.has_others or isinstance(value, Tensor)

    def equal(self, other: Arguments) -> bool:
        """Whether another call was given the same, other tensors that lie as these do aside."""
        return self.form == other.form and self._metas == other._metas and self._are_alive()

    def _are_alive(self) -> bool:
        return all([one() is not None for one in self._objects])

    def forget_tensors(self) -> None:
        """Keep only what is compared, and keep no object alive; TypeError where one cannot be referred to so."""
        self._objects = [ref(one) for one in self._objects]
        self.tensors, self.containers, self._given = [], [], ()

    def rows(self) -> tuple[tuple[Any, ...], tuple[str, ...]] | None:
        """Return what C compares calls with, and the names of arguments; None where one is no tensor and no constant.

        That is how a tensor lies, with the place of the first one that is the same, or only the constant.
        """
        metas, rows = iter(self._metas), []
        for value in self._given:
            if not (value.__class__ in purity.TENSORS or value.__class__ in purity.CONSTANTS):
                return None
            rows.append(next(metas) if value.__class__ in purity.TENSORS else (value,))
        return tuple(rows), self._names


def _metas_of(tensors: list[Tensor]) -> list[Any]:
    """Return how tensors lie, in which session, and which of them are the same."""
    places: dict[int, int] = {}
    return [
        (
            one.__class__, one._meta, one._requires_grad, one._is_inference, one._session,
            places.setdefault(id(one), place),
        )
        for place, one in enumerate(tensors)
    ]  # fmt: skip
