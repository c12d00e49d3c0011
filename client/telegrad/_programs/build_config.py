"""What ``torch.__config__`` tells: how the server's libraries were built is the server's; here stands what there is."""

from __future__ import annotations

import platform

import numpy


def show() -> str:
    """Return a text with the versions that this program runs with."""
    return (
        "telegrad, whose tensors are computed by a server:\n"
        f"  - Python {platform.python_version()}\n  - NumPy {numpy.__version__}\n"
    )


def parallel_info() -> str:
    """Return a text about threads: those that compute are the server's."""
    return "telegrad computes on its server; set_num_threads() bounds the threads of operations on its CPU\n"
