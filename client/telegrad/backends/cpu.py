"""The server's CPU: how it computes."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """The instructions that PyTorch's kernels would use; the server's kernels are NumPy's, which choose at run time."""
    return "DEFAULT"
