"""Calls of operations: the functions that are made from the contracts, and the one path that their calls take.

What is written by hand on top of operations is in ``_functions``.
"""

from __future__ import annotations
