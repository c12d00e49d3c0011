"""Uploads, reads and exported programs that HTTP requests continue, each under a number that the first one was told.

They stand beside the stream of instructions. This module knows neither HTTP nor the session's values.
"""

from __future__ import annotations

import itertools

from server.engine.value import Value
from telegrad_protocol.errors import ArgumentError, UnknownIdError
from telegrad_protocol.messages import CHUNK_BYTES

from .exported.loading import ProgramLoading
from .exported.program import LoadedProgram
from .replies import open_copy
from .uploads import TensorUpload


class TensorCopy:
    """The elements of a tensor as they were when the copy began, read piece by piece."""

    __slots__ = ("_copy", "nbytes")

    def __init__(self, value: Value) -> None:
        self.nbytes = value.meta.nbytes
        self._copy = open_copy(value)

    def piece(self, offset: int, size: int) -> memoryview | None:
        """Return ``size`` bytes at ``offset``, or None while the device has not delivered them."""
        if not (0 <= offset <= offset + size <= self.nbytes and size <= CHUNK_BYTES):
            raise ArgumentError(f"read: {size} bytes at {offset} of a tensor of {self.nbytes} bytes")
        return self._copy.bytes()[offset : offset + size] if self._copy.is_ready() else None


class Handles:
    """The uploads, copies and exported programs of one session by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._uploads: dict[int, TensorUpload] = {}
        self._copies: dict[int, TensorCopy] = {}
        self._programs: dict[int, ProgramLoading | LoadedProgram] = {}

    def add_upload(self, upload: TensorUpload) -> int:
        """Keep an upload and return its number."""
        number = next(self._numbers)
        self._uploads[number] = upload
        return number

    def upload(self, number: int) -> TensorUpload:
        """Return the upload of a number."""
        upload = self._uploads.get(number)
        if upload is None:
            raise UnknownIdError(f"the session has no upload number {number}")
        return upload

    def remove_upload(self, number: int) -> None:
        """Forget an upload; an unknown number is no error."""
        self._uploads.pop(number, None)

    def add_copy(self, copy: TensorCopy) -> int:
        """Keep a copy and return its number."""
        number = next(self._numbers)
        self._copies[number] = copy
        return number

    def copy(self, number: int) -> TensorCopy:
        """Return the copy of a number."""
        copy = self._copies.get(number)
        if copy is None:
            raise UnknownIdError(f"the session has no read number {number}")
        return copy

    def remove_copy(self, number: int) -> None:
        """Forget a copy; an unknown number is no error."""
        self._copies.pop(number, None)

    def add_program(self, program: ProgramLoading) -> int:
        """Keep a program that is being loaded, and return its number."""
        number = next(self._numbers)
        self._programs[number] = program
        return number

    def program(self, number: int) -> ProgramLoading | LoadedProgram:
        """Return the program of a number."""
        program = self._programs.get(number)
        if program is None:
            raise UnknownIdError(f"the session has no program number {number}")
        return program

    def set_loaded(self, number: int, program: LoadedProgram) -> None:
        """Keep a program that is loaded in the place of its loading."""
        self._programs[number] = program

    def remove_program(self, number: int) -> int:
        """Forget a program, and return how many steps it had; an unknown number is no error."""
        program = self._programs.pop(number, None)
        if program is None:
            return 0
        program.close()
        return program.steps

    def clear(self) -> None:
        """Forget everything."""
        for number in list(self._programs):
            self.remove_program(number)
        self._uploads.clear()
        self._copies.clear()
