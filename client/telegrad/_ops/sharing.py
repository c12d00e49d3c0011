"""Which memory tensors share while an operator of the program runs, and the arrays that it got of those it writes into.

What is written into such an array belongs into the tensor, as it would where both are one memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from telegrad._tensor.tensor import Tensor


class _Sharing(threading.local):
    """``keeps_saved`` tells that what graphs have saved is copied before it is modified.

    ``detached`` has tensors that were detached, by ``id``, and their origins; None while nobody asks.
    ``lent`` are the numbers, by ``memory_of``, of tensors whose arrays are written back, and ``arrays`` those that the
    program got: tensor, array, and a copy of it.
    """

    keeps_saved = False
    detached: dict[int, tuple[Tensor, Tensor]] | None = None
    lent: frozenset[int] = frozenset()
    arrays: list[tuple[Tensor, Any, Any]] | None = None


sharing = _Sharing()


def keep_saved(session: Any, targets: Iterable[Any]) -> None:
    """Let graphs keep what they have saved of tensors that are about to be modified. One round trip for each tensor."""
    for target in targets:
        for tensor in target if isinstance(target, (tuple, list)) else (target,):
            if tensor is not None:
                session.query("keep_saved", tensor._id)


def memory_of(tensor: Tensor) -> int:
    """Return a number that tensors share which are views of one tensor."""
    root = tensor if tensor._base is None else tensor._base
    while sharing.detached and id(root) in sharing.detached:
        origin = sharing.detached[id(root)][1]
        root = origin if origin._base is None else origin._base
    return id(root)


def lend(tensor: Tensor, array: np.ndarray[Any, Any]) -> None:
    """Note an array that the program got of a tensor, if it is one whose arrays are written back."""
    if sharing.arrays is not None and memory_of(tensor) in sharing.lent:
        sharing.arrays.append((tensor, array, array.copy()))


@contextmanager
def watched(written: Iterable[Tensor]) -> Iterator[list[tuple[Tensor, Any]]]:
    """Watch what is detached in this block; what is yielded has, after it, the arrays that were changed.

    ``written`` are the tensors of which arrays are watched.
    """
    before = sharing.detached, sharing.lent, sharing.arrays
    changed: list[tuple[Tensor, Any]] = []
    sharing.detached, sharing.arrays = {}, []
    sharing.lent = frozenset([memory_of(tensor) for tensor in written])
    try:
        yield changed
        changed += [(tensor, array) for tensor, array, copy in sharing.arrays if not _equal(array, copy)]
    finally:
        sharing.detached, sharing.lent, sharing.arrays = before


def _equal(array: Any, copy: Any) -> bool:
    return bool(array.tobytes() == copy.tobytes())
