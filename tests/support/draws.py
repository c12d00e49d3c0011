"""Which cases of a long list the default suite takes: a few that ``TEST_SEED`` draws; ``make test-full`` takes all.

It is for what every case goes through in the same way, where other tests of the default suite see every case.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Any

import pytest


def drawn(cases: Iterable[Any], count: int) -> list[Any]:
    """Return parameters that have names, all but ``count`` of them marked as slow."""
    cases = list(cases)
    taken = {id(case) for case in sorted(cases, key=_rank)[:count]}
    return [
        case if id(case) in taken else pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
        for case in cases
    ]


def _rank(case: Any) -> int:
    """Equal in all processes of a run, and another in a run with other inputs."""
    return zlib.crc32(f"{os.environ['TEST_SEED']} {case.id}".encode())
