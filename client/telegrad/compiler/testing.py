"""``torch._dynamo.testing``: backends that count what they are given, or keep it, and what tests of them call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad.fx.graph_module import GraphModule

from . import compile
from .aot.functions import aot_autograd
from .backends import lookup_backend
from .config import dynamo_config
from .dynamo_parts.alike import same as same
from .dynamo_parts.checks import check_dynamic_shape_capture as check_dynamic_shape_capture
from .dynamo_parts.checks import clone_me as clone_me
from .dynamo_parts.checks import collect_results as collect_results
from .dynamo_parts.checks import empty_line_normalizer as empty_line_normalizer
from .dynamo_parts.checks import expectedFailureDynamic as expectedFailureDynamic
from .dynamo_parts.checks import make_test_cls_with_patches as make_test_cls_with_patches
from .dynamo_parts.checks import normalize_gm as normalize_gm
from .dynamo_parts.checks import rand_strided as rand_strided
from .dynamo_parts.checks import reduce_to_scalar_loss as reduce_to_scalar_loss
from .dynamo_parts.checks import remove_optimized_module_prefix as remove_optimized_module_prefix
from .dynamo_parts.checks import remove_trailing_space as remove_trailing_space
from .dynamo_parts.checks import requires_bwd_pass as requires_bwd_pass
from .dynamo_parts.checks import reset_rng_state as reset_rng_state
from .dynamo_parts.checks import skipIfNotPy311 as skipIfNotPy311
from .dynamo_parts.checks import skipIfNotPy312 as skipIfNotPy312
from .dynamo_parts.checks import skipIfPy312 as skipIfPy312
from .dynamo_parts.checks import strip_comment as strip_comment
from .dynamo_parts.checks import xfailIfPy312 as xfailIfPy312


def _calls_in(graph: GraphModule) -> int:
    return sum(node.op.startswith("call") for node in graph.graph.nodes)


class CompileCounter:
    """A backend that counts graphs, ``frame_count``, and the calls in them, ``op_count``."""

    def __init__(self) -> None:
        self.frame_count: int | Any = 0
        self.clear()

    def clear(self) -> None:
        """Count from zero."""
        self.frame_count = self.op_count = 0

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _calls_in(gm)
        return gm.forward


class CompileCounterWithBackend(CompileCounter):
    """Counts, keeps ``graphs``, and has another backend compile them."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.graphs: list[GraphModule] = []
        super().__init__()

    def clear(self) -> None:
        super().clear()
        self.graphs = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)  # type: ignore[no-any-return]


class EagerAndRecordGraphs:
    """A backend that keeps ``graphs``, and calls them."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


def dummy_fx_compile(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return what calls a graph: a backend that changes nothing."""
    return gm.forward


class AotEagerAndRecordGraphs(EagerAndRecordGraphs):
    """A backend that keeps ``graphs``, and those of forward and backward passes, ``fw_graphs`` and ``bw_graphs``."""

    def __init__(self) -> None:
        super().__init__()
        self.fw_graphs: list[GraphModule] = []
        self.bw_graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        backend = aot_autograd(fw_compiler=_keeping(self.fw_graphs), bw_compiler=_keeping(self.bw_graphs))
        return backend(gm, example_inputs)  # type: ignore[no-any-return]


InductorAndRecordGraphs = EagerAndRecordGraphs


def _keeping(graphs: list[GraphModule]) -> Callable[..., Any]:
    def compiler(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    return compiler


def extract_graph(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """Return what a compiled function gives, with its graphs and those of forward and backward passes."""
    backend = AotEagerAndRecordGraphs()
    result = compile(fn, backend=backend)(*args, **kwargs)
    return result, backend.graphs, backend.fw_graphs, backend.bw_graphs


def standard_test(
    self: Any, fn: Callable[..., Any], nargs: int, expected_ops: int | None = None,
    expected_ops_dynamic: int | None = None, expected_frame_count: int = 1,
) -> None:  # fmt: skip
    """Fail the test case ``self`` unless a function of matrices compiles to one graph of so many operations."""
    counter = CompileCounter()
    given = [[function("randn")(10, 10) for _ in range(nargs)] for _ in range(2)]
    wanted = [fn(*args) for args in given]
    compiled = compile(fn, backend=counter, fullgraph=True)
    for args, result in [*zip(given, wanted, strict=True)] * 2:
        self.assertTrue(same(compiled(*args), result))
    self.assertEqual(counter.frame_count, expected_frame_count)
    if not dynamo_config.assume_static_by_default and expected_ops_dynamic is not None:
        expected_ops = expected_ops_dynamic
    if expected_ops is not None:
        self.assertEqual(counter.op_count, expected_ops)
