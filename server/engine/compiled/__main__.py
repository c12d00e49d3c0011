"""``python -m server.engine.compiled``: compile the loops into the cache, out of everybody's way."""

from __future__ import annotations

import os

from server.engine import compiled

if __name__ == "__main__":
    os.nice(10)
    compiled.compile_all()
