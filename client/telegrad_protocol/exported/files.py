"""A program's file: safetensors with the description in the metadata."""

from __future__ import annotations

from typing import BinaryIO, Final

from telegrad_protocol.errors import ProgramError

from . import container, description
from .checking import check, check_tensors

KEY: Final = "telegrad.program"
"""Under this name the metadata has the description."""


def read(
    file: BinaryIO, size: int, with_steps: bool = True
) -> tuple[container.Contents, description.ProgramDescription]:  # fmt: skip
    """Read and check the header of a file of ``size`` bytes. ProgramError where it holds no valid program.

    ``with_steps`` runs the shape rules of all steps, too, which a hostile file may make long.
    """
    contents = container.read_header(file, size)
    if KEY not in contents.metadata:
        raise ProgramError("the file holds tensors and no program; telegrad.export.save writes programs")
    program = description.parse(contents.metadata[KEY].encode())
    (check if with_steps else check_tensors)(program, contents.entries)
    return contents, program
