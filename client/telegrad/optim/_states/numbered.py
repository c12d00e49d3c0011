"""The state of one parameter, single numbers of which are the client's: they are tensors for whoever reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from telegrad._functions.creation import tensor
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32


class NumberedState(dict[str, Any]):
    """A dict in which some numbers become tensors when they are read, so that a step makes, and waits for, none.

    A tensor that was read is read itself at the next step, which costs a round trip, since the program may have changed
    it; the step writes into it as long as the program holds it. Copies and pickles are plain dicts of tensors.
    """

    __slots__ = ("_exact", "_names", "_shown")

    def __init__(self, entry: Mapping[str, Any], names: Iterable[str]) -> None:
        super().__init__(entry)
        self._names = frozenset(names)
        self._exact: dict[str, float] = {}
        """The numbers that tensors were made of, which have fewer digits."""
        self._shown: dict[str, ReferenceType[Tensor]] = {}

    def opened(self) -> dict[str, Any]:
        """Return a plain dict for a step, with the numbers as such."""
        return {name: self._number(name) if name in self._names else value for name, value in super().items()}

    def close(self, opened: Mapping[str, Any]) -> None:
        """Take over the numbers that a step has changed."""
        for name in self._names & self.keys():
            super().__setitem__(name, opened[name])
            shown = self._shown.get(name)
            held = shown() if shown is not None else None
            if held is not None:
                held.fill_(opened[name])
                self._exact[name] = opened[name]

    def packed(self) -> dict[str, Any]:
        """Return a plain dict with tensors of its own for the numbers, which is no reading of this one."""
        return {name: as_tensor(value) if name in self._names else value for name, value in super().items()}

    def _number(self, name: str) -> float:
        value, shown = super().__getitem__(name), self._shown.get(name)
        held = value if isinstance(value, Tensor) else None if shown is None else shown()
        if held is None:
            return float(value)
        number, exact = float(held.item()), self._exact.get(name)
        if exact is not None and float(np.float32(exact)) == number:
            number = exact
        self._shown[name] = ref(held)
        super().__setitem__(name, number)
        return number

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name not in self._names or isinstance(value, Tensor):
            return value
        shown = self._shown.get(name)
        made = shown() if shown is not None else None
        if made is None:
            made, self._exact[name] = as_tensor(value), value
        super().__setitem__(name, made)
        return made

    def __setitem__(self, name: str, value: Any) -> None:
        self._shown.pop(name, None)  # what a program holds is no longer what the entry is
        super().__setitem__(name, value)

    def update(self, *entries: Any, **named: Any) -> None:
        """Replace entries, or add them."""
        for name, value in dict(*entries, **named).items():
            self[name] = value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or ``default`` where there is none."""
        try:
            return self[name]
        except KeyError:
            return default

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return an entry, which is ``default`` from here on where there was none."""
        super().setdefault(name, default)
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Return an entry, and remove it."""
        value = self.get(name)
        removed = super().pop(name, *default)
        return removed if value is None else value

    def items(self) -> Any:
        """Return the names with the entries."""
        return {name: self[name] for name in self}.items()

    def values(self) -> Any:
        """Return the entries."""
        return {name: self[name] for name in self}.values()

    def copy(self) -> dict[str, Any]:
        """Return a plain dict of the entries."""
        return dict(self.items())

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()  # so that ``dict(state)`` asks for the entries

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self.copy(),)


def as_tensor(number: Any) -> Any:
    """Return a number as a tensor without dimensions."""
    return number if isinstance(number, Tensor) else tensor(float(number), dtype=float32)
