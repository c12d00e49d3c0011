"""``python -m server`` with the test engine in its worker."""

from __future__ import annotations

import functools
import sys

import server.app
from server.__main__ import main
from server.supervisor import Supervisor

if __name__ == "__main__":
    server.app.Supervisor = functools.partial(Supervisor, host="tests.gateway.engine:Host")  # type: ignore[misc]
    sys.exit(main())
