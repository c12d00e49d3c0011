"""Equal calls in several places of a program, such as an update for each parameter: what is learnt once serves all.

What is launched on the memory of any inputs does the same for every stretch of the same calls in the same situation. So
it is recorded once. What was captured where its inputs lie is each stretch's own. Knows no instructions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from server.session.state import SessionState
from telegrad_protocol.errors import OutOfMemoryError

from .compiled import Variant

_MOST: Final = 256
"""So many variants are kept for other stretches, the latest ones."""


def lend(state: SessionState, calls: bytes, met: Any, variant: Variant) -> None:
    """Keep what was recorded of calls in a situation, for other stretches of equal calls."""
    lent = state.lent_variants
    if len(lent) >= _MOST:
        lent.pop(next(iter(lent)))
    with suppress(OutOfMemoryError):  # each stretch records its own
        lent[calls, met] = variant


def borrowed(state: SessionState, calls: bytes, met: Any) -> Variant | None:
    """Return what another stretch of equal calls is executed by on any memory; None where there is no such thing."""
    variant = state.lent_variants.get((calls, met))
    return variant if variant is not None and variant.lies_anywhere else None


def forget(state: SessionState, variant: Variant) -> None:
    """Lend a variant that failed to nobody any more."""
    for key in [key for key, one in state.lent_variants.items() if one is variant]:
        state.lent_variants.pop(key)
