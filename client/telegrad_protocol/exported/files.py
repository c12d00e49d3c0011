"""A program's file: safetensors with the description in the metadata."""

from __future__ import annotations

from typing import BinaryIO, Final

from telegrad_protocol.errors import ProgramError

from . import container, description
from .checking import check

KEY: Final = "telegrad.program"
"""Under this name the metadata has the description."""


def read(file: BinaryIO, size: int) -> tuple[container.Contents, description.ProgramDescription]:
    """Read and check the header of a file of ``size`` bytes. ProgramError where it holds no valid program."""
    contents = container.read_header(file, size)
    if KEY not in contents.metadata:
        raise ProgramError("the file holds tensors and no program; telegrad.export.save writes programs")
    program = description.parse(contents.metadata[KEY].encode())
    check(program, contents.entries)
    return contents, program
