"""CUDA graphs under PyTorch's names, which programs import: the server makes them by itself, so using one is refused.

What a program repeats is captured by the server and launched as one graph (docs/replay.md).
"""

from __future__ import annotations

from typing import Any, NoReturn

from telegrad_protocol.errors import NotSupportedError

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def _refuse(name: str) -> NoReturn:
    raise NotSupportedError(
        f"{name}: a program cannot capture graphs yet; leave the capture out and call the function itself: "
        "the server captures by itself what a program repeats, and launches it as one graph"
    )


class CUDAGraph:
    """Refuses to be made."""

    def __init__(self, keep_graph: bool = False) -> None:
        _refuse("CUDAGraph")


class graph:
    """Refuses to be made."""

    def __init__(
        self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global",
        enable_annotations: bool = False, check_input_liveness: bool = False,
    ) -> None:  # fmt: skip
        _refuse("graph")


def graph_pool_handle() -> Any:
    """Refuse: pools of memory for graphs are the server's."""
    _refuse("graph_pool_handle")


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Refuse: call the functions or modules themselves."""
    _refuse("make_graphed_callables")


def is_current_stream_capturing() -> bool:
    """Whether the program captures a graph: it never does."""
    return False
