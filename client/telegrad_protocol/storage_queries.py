"""What a session can be asked about the memory that its tensors lie in."""

from __future__ import annotations

from .queries import SessionQuery


class DataPtr(SessionQuery, frozen=True):
    """The address of a tensor's first element in the memory of its device; 0 where it has no elements."""

    id: int


class Storages(SessionQuery, frozen=True):
    """For each tensor a number that tensors in the same memory share, and how many bytes that memory has."""

    ids: tuple[int, ...]
