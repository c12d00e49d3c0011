"""Errors of what PyTorch refuses by an ``assert``, which are its AssertionError too: programs and tests catch that."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, ShapeError


class AssertedArgumentError(ArgumentError, AssertionError):
    """A value makes no sense for its parameter."""


class AssertedAutogradError(AutogradError, AssertionError):
    """Something that gradients need comes in a wrong order."""


class AssertedShapeError(ShapeError, AssertionError):
    """The shapes of operands do not fit together, which PyTorch asserts."""


class AssertedTypeError(ArgumentTypeError, AssertionError):
    """An argument is of the wrong kind."""
