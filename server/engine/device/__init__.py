"""Devices as the engine sees them: memory for values, arrays over it, streams, graphs and the launch queue."""

from __future__ import annotations
