"""Layers that save time, each over the one below it: fast bins, recall, call sequences; and the cache of pinned memory.

They change neither addresses nor statistics. Nothing here knows what is shown to people or which session may do what.
"""

from __future__ import annotations
