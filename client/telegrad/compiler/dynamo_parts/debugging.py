"""``torch._dynamo.backends.debugging``: backends that compile nothing, and one that explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad.compiler.aot.functions import aot_autograd, nop
from telegrad.compiler.backends import lookup_backend
from telegrad.compiler.explanation import ExplainOutput as ExplainOutput
from telegrad.fx.graph_module import GraphModule


def eager(gm: GraphModule, fake_tensor_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Return what calls a graph."""
    return gm.forward


eager_noexcept = eager_debug = pre_dispatch_eager = boxed_nop = get_nop_func = eager


def aot_eager(
    gm: GraphModule, fake_tensor_inputs: Sequence[Any], fw_compiler: Any = None, bw_compiler: Any = None,
    **options: Any,
) -> Callable[..., Any]:  # fmt: skip
    """Return what calls a graph's forward and backward passes, as operators or as compilers have made them."""
    return aot_autograd(fw_compiler=fw_compiler or nop, bw_compiler=bw_compiler or nop)(gm, fake_tensor_inputs)  # type: ignore[no-any-return]


aot_eager_decomp_partition = aot_eager


class ExplainWithBackend:
    """A backend that notes the graphs it is given, for ``output``, and has another backend compile them."""

    def __init__(self, backend: Any) -> None:
        self.backend = lookup_backend(backend)
        self.graphs: list[GraphModule] = []
        self.op_count = 0

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        self.op_count += sum([node.op == "call_function" for node in gm.graph.nodes])
        return self.backend(gm, example_inputs)  # type: ignore[no-any-return]

    def output(self) -> ExplainOutput:
        """Return what the graphs are, and that there was a break between each and the next one."""
        return ExplainOutput.of_graphs(self.graphs, self.op_count)
