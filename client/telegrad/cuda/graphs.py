"""CUDA graphs, as ``torch.cuda.graphs`` has them: captured by hand, or of whole functions and modules."""

from __future__ import annotations

from .captures import CUDAGraph as CUDAGraph
from .captures import graph as graph
from .captures import graph_pool_handle as graph_pool_handle
from .captures import is_current_stream_capturing as is_current_stream_capturing
from .graphed_callables import make_graphed_callables as make_graphed_callables

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]
