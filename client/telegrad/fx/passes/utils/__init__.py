"""What passes share."""

from __future__ import annotations
