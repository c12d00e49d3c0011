"""Random numbers that choose samples: drawn on this machine, seeded from the session's generator or another."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.current import has_session
from telegrad_protocol.dtypes import int64


def drawn_seed(generator: Any = None) -> int:
    """Return a random number; it repeats after ``manual_seed``. Costs one round trip."""
    given = {} if generator is None else {"generator": generator}
    return int(function("randint")(0, 2**62, (1,), dtype=int64, device="cpu", **given).item())


def pass_seed(generator: Any = None) -> None:
    """Draw the number that workers of a pass would be seeded with, which nothing waits for.

    Samplers draw the same numbers then as in a pass with workers.
    """
    if has_session():
        given = {} if generator is None else {"generator": generator}
        function("randint")(0, 2**62, (1,), dtype=int64, device="cpu", **given)


def host_generator(generator: Any = None) -> np.random.Generator:
    """Return a generator of this machine that is seeded from the session's, or from the one given."""
    return np.random.default_rng(drawn_seed(generator))


def permutation(count: int, generator: Any = None) -> list[int]:
    """Return the numbers below ``count`` in random order."""
    return host_generator(generator).permutation(count).tolist()  # type: ignore[no-any-return]
