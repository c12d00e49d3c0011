"""The telegrad server: a gateway that speaks HTTP and WebSocket, and workers that compute."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
