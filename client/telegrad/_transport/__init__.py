"""How frames get to a session and back. Knows nothing of what is in them."""

from __future__ import annotations
