"""``python -m server`` with a simulated node's host in its worker."""

from __future__ import annotations

import functools
import sys

import server.gateway.app
from server.__main__ import main
from server.gateway.supervisor import Supervisor

if __name__ == "__main__":
    supervisor = functools.partial(Supervisor, host="tests.support.node:SimulatedHost")
    server.gateway.app.Supervisor = supervisor  # type: ignore[misc,assignment]
    sys.exit(main())
