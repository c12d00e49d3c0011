"""``torch._dynamo.utils.counters``: how often what has happened, by kind, since ``counters.clear()``."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

counters: Final[defaultdict[str, Counter[str]]] = defaultdict(Counter)
"""``graph_break`` by reason; of functions with a backend of the program's own ``frames`` and ``stats``, too."""
