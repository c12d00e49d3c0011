"""Graphs as text: names of what they call, printed tables, and the Python that is generated."""

from __future__ import annotations
