"""One worker: its process, what keeps it running, and what ends it where it takes too long. Knows no session."""

from __future__ import annotations
