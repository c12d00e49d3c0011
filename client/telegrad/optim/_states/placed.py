"""The state of one parameter whose single numbers lie beside it, so that captured steps read and change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from telegrad._session.parts import capturing
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import CaptureError

from .numbered import as_tensor


def check_capturable(name: str, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raise CaptureError within a capture if a group's numbers would be the same in each replay."""
    if capturing.current() and not all([group.get("capturable", True) for group in groups]):
        raise CaptureError(
            f"Attempting CUDA graph capture of step() for an instance of {name} but param_groups' capturable is False."
        )


class PlacedState(dict[str, Any]):
    """A dict in which some numbers are tensors without dimensions, on the device of the parameter.

    Steps change them in place: a graph that has captured a step finds them there in each replay.
    """

    __slots__ = ("_names",)

    def __init__(self, entry: Mapping[str, Any], names: Iterable[str], parameter: Tensor) -> None:
        super().__init__(entry)
        self._names = frozenset(names) & self.keys()
        for name in self._names:
            self[name] = as_tensor(self[name]).to(parameter.device)

    def opened(self) -> dict[str, Any]:
        """Return a plain dict for a step, which may change tensors in place or replace them."""
        return dict(self)

    def close(self, opened: Mapping[str, Any]) -> None:
        """Write numbers that a step has replaced to where they were."""
        for name in self._names:
            if opened[name] is not self[name]:
                self[name].copy_(opened[name])

    def packed(self) -> dict[str, Any]:
        """Return a plain dict of the entries."""
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)
