"""``python -m server.worker``: a worker process, which the gateway's supervisor starts."""

from __future__ import annotations

import gc


def _start() -> None:
    gc.disable()
    from server.worker.entry import main

    main()


if __name__ == "__main__":
    _start()
