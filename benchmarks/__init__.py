"""Benchmarks: each runs its baseline side by side in the same run, and reports median and spread."""

from __future__ import annotations

import os

os.environ.setdefault("TELEGRAD_NATIVE", "wait")  # as on machines where programs have run before
