"""``python -m server.worker``: a worker process, which the gateway's supervisor starts."""

from __future__ import annotations

import gc
import sys


def _start() -> None:
    gc.disable()
    from server.worker.entry import main
    from server.worker.waiting import options_of_worker

    main(options_of_worker(sys.argv[1:]))


if __name__ == "__main__":
    _start()
