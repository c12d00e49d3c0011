"""Exported programs that a session has loaded from files, and runs for callers over HTTP."""

from __future__ import annotations
