"""Instructions about code that the client's program brings to the server."""

from __future__ import annotations
