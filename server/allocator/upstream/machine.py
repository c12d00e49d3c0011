"""How much memory this machine, or the container that limits it, has. Knows no segments."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def physical_memory() -> int:
    """Bytes of memory that this machine, or the container that limits it, has."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits_of_control_groups()])


def _limits_of_control_groups() -> list[int]:
    """What the control group of this process, and those that it is in, may use; of version 2, or 1."""
    own = ["/"]
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as groups:
        own += [line.rstrip().split(":", 2)[2] for line in groups if line.count(":") >= 2]
    limits = []
    for path in {str(folder) for name in own for folder in (Path(name), *Path(name).parents)}:
        for file in (f"/sys/fs/cgroup{path}/memory.max", f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError), open(file) as limit:
                limits.append(int(limit.read()))
    return limits
