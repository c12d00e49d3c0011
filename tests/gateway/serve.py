"""``python -m server`` with the test engine in its worker."""

from __future__ import annotations

import functools
import sys

import server.gateway.app
from server.__main__ import main
from server.gateway.node import Node

if __name__ == "__main__":
    server.gateway.app.Node = functools.partial(Node, host="tests.gateway.engine:Host")  # type: ignore[misc]
    sys.exit(main())
