"""Batching rules, by families of operations; each file enters its own in ``case.RULES``."""

from __future__ import annotations
