"""What calls depend on besides arguments and what they read: modes of the thread, and defaults."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from telegrad._ops import functions
from telegrad._ops.batching import batching
from telegrad._ops.duals import duals
from telegrad._ops.operand_classes import modes_entered, overrides
from telegrad._ops.replaced import REPLACED
from telegrad._ops.sharing import sharing
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import AutocastSettings, Modes, thread
from telegrad_protocol.dtypes import DType, get_default_dtype

_call: Final = functions.call


class Situation(NamedTuple):
    """What a thread has chosen about autocast, the session, the modes of the thread, and how tensors are made."""

    autocast: AutocastSettings
    session: ClientSession
    modes: Modes
    places: Any
    default_dtype: DType

    @staticmethod
    def of(session: ClientSession) -> Situation:
        """Return the situation that a call of this thread has now."""
        return Situation(thread.autocast, session, thread.modes, session.places, get_default_dtype())


def is_ordinary() -> bool:
    """Whether calls of operations go where they usually go: nothing answers or transforms them.

    A profile may note them, which shows what is executed anyway.
    """
    call = vars(functions)["call"]
    return getattr(call, "plain", call) is _call and not (
        modes_entered or overrides.modes or overrides.dispatch_modes or batching.levels or duals.levels
        or batching.derivatives or sharing.keeps_saved or REPLACED
    )  # fmt: skip
