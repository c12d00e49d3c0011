"""Calls of operations: binding, shape rules, and the functions and methods that users see."""

from __future__ import annotations
