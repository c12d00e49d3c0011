"""What people read about memory: statistics, summary, snapshot, history."""

from __future__ import annotations
