"""The handle on a remote tensor, and pure functions about bytes, text, files, indices and limits of types.

Nothing here runs an operation or waits for a server; only the handle knows its session.
"""

from __future__ import annotations
