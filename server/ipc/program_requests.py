"""Requests about exported programs: a session loads and runs them. ``requests`` says how they travel."""

from __future__ import annotations

from msgspec import Struct

from .requests import SessionRequest


class OpenProgram(SessionRequest, frozen=True):
    """Open a program's file, and check it. Answer: ``int``, the number of the program in the session."""

    path: str


class LoadProgram(SessionRequest, frozen=True):
    """Read a part of a program's tensors. Answer: ``bool``, whether all are there; it is asked until they are."""

    program: int


class GivenInput(Struct, frozen=True, array_like=True):
    """An input of a run: its shape, and its row-major elements, or the tensor of the session that has them.

    That tensor is taken: the session does not have it afterwards.
    """

    shape: tuple[int, ...]
    data: bytes
    tensor: int | None = None


class MadeOutput(Struct, frozen=True, array_like=True):
    """An output of a run: its elements, or the handle of a read (``ReadChunk``, ``ReadEnd``) where they are not there.

    They are not there where they are large, or while a device computes them.
    """

    shape: tuple[int, ...]
    nbytes: int
    data: bytes
    read: int | None = None


class RunProgram(SessionRequest, frozen=True):
    """Run a program on inputs in its order. Answer: ``list[MadeOutput]``."""

    program: int
    inputs: list[GivenInput]


class CloseProgram(SessionRequest, frozen=True):
    """Forget a program; an unknown number is no error. Answer: None."""

    program: int
