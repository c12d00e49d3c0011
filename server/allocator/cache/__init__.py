"""The caching allocator that the engine calls."""

from __future__ import annotations
