"""``share_memory_``: processes of a program share no tensor. One that is to be shared is not sent as a copy instead."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final
from weakref import WeakValueDictionary

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError

_TO_BE_SHARED: Final[WeakValueDictionary[int, Tensor]] = WeakValueDictionary()
"""By identity, the tensors whose memory the program wants processes to share."""


def is_shared(self: Tensor) -> bool:
    """Return False: the memory is the server's and not shared with processes of this program."""
    return False


def share_memory_(self: Tensor) -> Tensor:
    """Return the tensor itself, which is not sent to another process from here on: it would not see what is written."""
    shown = self if self._base is None else self._base
    _TO_BE_SHARED[id(self)], _TO_BE_SHARED[id(shown)] = self, shown
    import_module("multiprocessing.reduction").ForkingPickler.register(type(self), _reduce_for_process)
    return self


def _reduce_for_process(tensor: Tensor) -> Any:
    """Pickle a tensor for another process; refuse one whose memory both would have to see."""
    base = tensor if tensor._base is None else tensor._base
    if id(tensor) not in _TO_BE_SHARED and id(base) not in _TO_BE_SHARED:
        return tensor.__reduce_ex__(2)
    raise NotSupportedError(
        "share_memory_: processes share no tensor, since each has a session of its own: what one writes the others "
        "would not see. Start threads, which share all tensors, or return results through a queue and leave out "
        "share_memory_(), so that processes get copies"
    )


METHODS: dict[str, Any] = {"is_shared": is_shared, "share_memory_": share_memory_}
