"""How many processors this process may use."""

from __future__ import annotations

import os
from typing import Final

QUOTAS: Final = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def available() -> int:
    """How many processors the set of this process and its control group's quota allow, one at least."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([count, *quota()]))


def quota() -> list[int]:
    """The processors that the control group's quota is worth, rounded up; nothing where there is no quota."""
    for path in QUOTAS:
        try:
            with open(path) as file:
                quota, *period = file.read().split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():
            return [max(1, -(-int(quota) // int(period[0] if period else 100_000)))]
    return []


def can_wait_awake() -> bool:
    """Whether this process may wait awake for another one on this machine: neither takes the processor from the other,
    and a quota is not used up by two processes that are always awake.
    """
    return available() > (2 if quota() else 1)
