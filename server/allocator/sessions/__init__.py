"""What each session holds and may hold."""

from __future__ import annotations
