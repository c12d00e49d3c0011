"""Forward differentiation: tensors with tangents, which operations carry on to their results."""

from __future__ import annotations

import threading
from typing import NamedTuple

from telegrad._ops.duals import duals
from telegrad._session.grad_mode import ModeBlock
from telegrad._tensor.tensor import Tensor, require_one_session
from telegrad_protocol.errors import AutogradError, ShapeError

from ._levels import Level

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip


class _Entered(threading.local):
    """The level that the program has entered; functions of ``func`` have levels of their own."""

    level: Level | None = None


_entered = _Entered()


def __getattr__(name: str) -> int:
    """Return the number of the innermost level for the name that packages read it by; -1 where there is none."""
    if name == "_current_level":
        return len(duals.levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Enter the level in which dual numbers exist, and return its number, 0; levels cannot be nested."""
    if _entered.level is not None:
        raise AutogradError("Nested forward mode AD is not supported at the moment; use telegrad.func.jvp")
    _entered.level = Level()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level: dual numbers become ordinary tensors, and tangents are dropped."""
    current = _entered.level
    if current is None or level not in (None, 0):
        raise AutogradError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _entered.level = None
    current.exit()


class dual_level(ModeBlock):
    """The block in which dual numbers exist."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual number; ``tangent`` is None for a tensor that is none."""

    primal: Tensor
    tangent: Tensor | None


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a dual number: these elements, with ``tangent`` as their derivative.

    It shares the memory of ``tensor``, unless that requires a gradient: then it is a copy.

    Raises AutogradError outside
    of a level, and where ``tensor`` is a dual number; ArgumentError for numbers without derivatives, ShapeError where
    the shapes differ.
    """
    current = _entered.level
    if current is None:
        raise AutogradError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    require_one_session("make_dual", tensor, tangent)
    if tensor._meta.shape != tangent._meta.shape:
        raise ShapeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    if current.is_dual(tensor):
        raise AutogradError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    return current.dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the elements of a dual number without their tangent, and the tangent. No round trip."""
    current = _entered.level
    if current is None or level not in (None, 0):
        return UnpackedDualTensor(tensor, None)
    tangent = current.tangents([tensor])[0]
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    if tangent.requires_grad and current.is_dual(tangent):
        tangent = current.primal(tangent)
    return UnpackedDualTensor(current.primal(tensor), tangent)
