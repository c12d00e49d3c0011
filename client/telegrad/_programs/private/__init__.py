"""Modules of PyTorch's that are no part of its interface, or of systems that telegrad has not.

They have what packages import, with what it means where nothing is traced, exported or compiled. A module here stands
for one or several of PyTorch's.
"""

from __future__ import annotations
