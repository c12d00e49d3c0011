"""Counts what autograd is told of values that are there: a gradient, a history, or whether they require a gradient.

Nothing else of a value changes after it was made, so that what was found of some values still holds while they are
there and nothing was counted. Whoever changes autograd's part of a value calls ``note``; of a value that was just made
nothing has to be counted.
"""

from __future__ import annotations

count = 0
"""How many changes there were, of all values of this process."""


def note() -> None:
    """Count a change of what autograd knows of a value, made now."""
    global count
    count += 1
