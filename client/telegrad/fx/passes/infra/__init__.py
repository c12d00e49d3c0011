"""What passes are made of: their classes and results, the order they run in, and partitions of graphs."""

from __future__ import annotations
