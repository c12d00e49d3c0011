"""``python -m server.engine.compiled``: compile the loops into the cache, unless they are never used."""

from __future__ import annotations

import os

from server.engine import compiled

if __name__ == "__main__":
    if os.environ.get(compiled.SETTING) != "never":
        os.nice(10)
        compiled.compile_all()
