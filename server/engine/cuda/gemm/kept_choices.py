"""Measured choices of ways to compute products that are kept on the disk, for all sessions and later processes.

Programs that are compiled with ``max-autotune`` take them. They hold for one kind of device and versions of libraries,
which the file's name tells. Processes append to it, each a whole line at once; where the directory cannot be written
to, each process measures anew.
"""

from __future__ import annotations

import contextlib
import functools
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from server.engine import keys
from server.engine.tuning import TUNERS, Result, Tuner
from server.kernel_cache import kernels_directory
from telegrad_protocol.errors import ArgumentError

from .tunable import validators

_DURATION_MS: Final = 3
"""For so long each way is measured: other sessions wait meanwhile."""
_FIELDS: Final = 4


class KeptTuner(Tuner):
    """Results that a file has, and those that are found from now on."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.max_duration_ms = _DURATION_MS
        self._path = path
        with contextlib.suppress(OSError):
            for line in path.read_text(errors="replace").splitlines():
                self._take(line.split(","))

    def _take(self, fields: list[str]) -> None:
        """Take over a result; a line that says none is passed over, as one that was cut short."""
        with contextlib.suppress(ArgumentError, ValueError):
            if len(fields) == _FIELDS:
                super().note(fields[0], fields[1], Result(fields[2], float(fields[3])))

    def note(self, operation: str, parameters: str, result: Result) -> None:
        """Keep a result, in the file too."""
        super().note(operation, parameters, result)
        line = f"{operation},{parameters},{result.solution},{result.milliseconds:.6g}\n"
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)


_tuner_of = functools.cache(KeptTuner)


def choices_on(backend: Any) -> Tuner:
    """Return the results that hold for a device."""
    return _tuner_of(path_of(validators(backend)))


def path_of(held: list[list[str]]) -> Path:
    """Return the file of what holds under these names and values."""
    digest = blake2b(repr(held).encode(), digest_size=8).hexdigest()
    return kernels_directory() / f"products-{digest}.csv"


TUNERS[keys.CUDA] = choices_on
