"""Sessions, driven by messages directly and over HTTP."""

from __future__ import annotations
