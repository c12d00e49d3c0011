"""How many processors this process may use: those of its set, as far as the control group's quota goes."""

from __future__ import annotations

import os

QUOTAS = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def processors() -> int:
    """Return how many processors the set of processors and the control group's quota allow."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([number, *quota()])


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
