"""``torch._dynamo.testing``: backends that count what they are given, or keep it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._functions.creation import allclose
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph_module import GraphModule

from .backends import lookup_backend


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


def same(a: Any, b: Any, tol: float = 1e-4, equal_nan: bool = False, exact_dtype: bool = True, **options: Any) -> bool:
    """Tell whether two results are alike: tensors within ``tol``, in lists, tuples and dicts, other values equal."""
    if isinstance(a, (list, tuple)):
        return (
            isinstance(b, (list, tuple))
            and len(a) == len(b)
            and all([same(ours, theirs, tol, equal_nan, exact_dtype) for ours, theirs in zip(a, b)])
        )
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and a.keys() == b.keys()
            and all([same(a[key], b[key], tol, equal_nan, exact_dtype) for key in a])
        )
    if not isinstance(a, Tensor):
        return bool(a == b)
    if not isinstance(b, Tensor) or a.shape != b.shape or (exact_dtype and a.dtype is not b.dtype):
        return False
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return bool(allclose(a, b.to(a.dtype), rtol=tol, atol=tol, equal_nan=equal_nan))
    return bool((a == b.to(a.dtype)).all())
