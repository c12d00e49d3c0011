"""``python -m server.worker``: the entry point of a worker process, which the gateway's supervisor starts."""

from __future__ import annotations

from server.worker.loop import main

if __name__ == "__main__":
    main()
