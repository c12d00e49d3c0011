"""Instructions about CUDA graphs: a session captures what it does, under a number, and has it done again."""

from __future__ import annotations

from msgspec import Struct

from telegrad_protocol.queries import SessionQuery


class BeginCapture(Struct, frozen=True, array_like=True, tag=51, gc=False):
    """Capture as graph ``graph`` what this thread has a device do from here on; nothing of it shall be seen to be done.

    Memory comes from ``pool``: a `MemPool` by its id, which begins with 0, or one of the session's pools for graphs,
    which is made if it is new.
    """

    graph: int
    site: int
    device: str
    pool: tuple[int, int]


class EndCapture(Struct, frozen=True, array_like=True, tag=52, gc=False):
    """End the capture of a graph, which is there afterwards if it ``is_whole`` and nothing has failed meanwhile."""

    graph: int
    site: int
    is_whole: bool


class ReplayGraph(Struct, frozen=True, array_like=True, tag=53, gc=False):
    """Do what was captured again, with the same memory."""

    graph: int
    site: int


class GraphOperations(SessionQuery, frozen=True):
    """The names of the operations of a captured graph, in order."""

    graph: int
