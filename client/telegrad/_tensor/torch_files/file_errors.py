"""Errors of files that tensors cannot be read from, which are PyTorch's classes too: programs catch those."""

from __future__ import annotations

from pickle import UnpicklingError  # noqa: TID251  # what programs catch; nothing is unpickled

from telegrad_protocol.errors import ArgumentError


class UnreadableFileError(ArgumentError, UnpicklingError):
    """A file is none that tensors are kept in."""


class EmptyFileError(ArgumentError, EOFError):
    """A file has no bytes, as where a program was ended while it wrote."""
