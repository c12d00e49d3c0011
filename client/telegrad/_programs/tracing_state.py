"""``torch._guards``: what is known while Python is traced, which telegrad does not do; fake tensors there are."""

from __future__ import annotations

from typing import Any

from telegrad._dispatch.fake_tensors import FakeTensorMode, is_fake
from telegrad._ops.operand_classes import overrides
from telegrad.utils._pytree import tree_leaves
from telegrad_protocol.errors import ArgumentError


class _DifferentModesError(ArgumentError, AssertionError):
    """Fake tensors of one call belong to different modes."""


def active_fake_mode() -> FakeTensorMode | None:
    """Return the innermost mode of fake tensors whose block is running; None outside of such blocks."""
    return next((mode for mode in reversed(overrides.dispatch_modes) if isinstance(mode, FakeTensorMode)), None)


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """Return the mode that runs, else that of the fake tensors in ``inputs``, which may be nested; None without any.

    Raises an AssertionError where an input is of another mode than the one that runs, or than another input.
    """
    active = active_fake_mode()
    found = [] if active is None else [("the active mode", active)]
    found += [(f"input {n}", leaf.fake_mode) for n, leaf in enumerate(tree_leaves(inputs)) if is_fake(leaf)]
    for where, mode in found[1:]:
        if mode is not found[0][1]:
            raise _DifferentModesError(f"detect_fake_mode: the fake mode of {where} is not that of {found[0][0]}")
    return found[0][1] if found else None


class TracingContext:
    """What is known of a trace: there never is one."""

    @staticmethod
    def try_get() -> None:
        """Return None: nothing is ever traced."""

    @staticmethod
    def get() -> Any:
        """Raise RuntimeError, as outside of a trace."""
        raise RuntimeError("TracingContext.get() is for functions that are being traced, which telegrad never does")


class CompileContext:
    """What is known of a function that is being compiled: there never is one."""

    @staticmethod
    def try_get() -> None:
        """Return None: nothing is ever traced."""

    @staticmethod
    def current_compile_id() -> None:
        """Return None: nothing is ever traced."""

    @staticmethod
    def current_trace_id() -> None:
        """Return None: nothing is ever traced."""
