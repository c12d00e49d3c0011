"""Functions and modules as graphs that programs read, rewrite and run: ``torch.fx``.

``symbolic_trace`` runs a function once on proxies, which record what is done with them. ``GraphModule`` generates
Python from the graph and runs it. Nothing of this concerns the server: the generated code calls operations as any
program does.
"""

from __future__ import annotations

from . import immutable_collections as immutable_collections
from ._symbolic_trace import PH as PH
from ._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from ._symbolic_trace import Tracer as Tracer
from ._symbolic_trace import symbolic_trace as symbolic_trace
from ._tracing.wrapping import wrap as wrap
from .graph import CodeGen as CodeGen
from .graph import Graph as Graph
from .graph_module import GraphModule as GraphModule
from .interpreter import Interpreter as Interpreter
from .interpreter import Transformer as Transformer
from .node import Node as Node
from .node import has_side_effect as has_side_effect
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy
from .subgraph_rewriter import replace_pattern as replace_pattern

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "map_arg",
    "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip
