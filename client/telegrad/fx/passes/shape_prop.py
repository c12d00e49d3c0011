"""``ShapeProp``: runs a graph on example inputs and notes type and shape of each result in the nodes' metadata."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.fx.interpreter import Interpreter
from telegrad.fx.node import Node, map_aggregate
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import MemoryFormat, channels_last, channels_last_3d, contiguous_format

__all__ = ["ShapeProp", "TensorMetadata"]

_FORMATS: Final = ((contiguous_format, None), (channels_last, 4), (channels_last_3d, 5))


class TensorMetadata(NamedTuple):
    """What a tensor is like, without its elements."""

    shape: Any
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: MemoryFormat | None
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """Return what a tensor is like."""
    format = next(
        (
            format for format, ndim in _FORMATS
            if include_contiguity and ndim in (None, result.ndim) and result.is_contiguous(memory_format=format)
        ),
        None,
    )  # fmt: skip
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, tuple(result.stride()), format, False, {})


class ShapeProp(Interpreter):
    """Runs a module's graph and gives each node ``meta["tensor_meta"]`` and ``meta["type"]``."""

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode, self.real_module = fake_mode, self.module

    def run_node(self, n: Node) -> Any:
        try:
            if self.fake_mode is None:
                result = super().run_node(n)
            else:
                with self.fake_mode:
                    result = super().run_node(n)
        except Exception as error:
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        tensors: list[Tensor] = []

        def described(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            tensors.append(leaf)
            return _extract_tensor_metadata(leaf)

        meta = map_aggregate(result, described)
        if tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on these inputs and return its result."""
        if self.fake_mode is not None:
            args = tuple([self.fake_mode.from_tensor(arg) if isinstance(arg, Tensor) else arg for arg in args])
        return self.run(*args)
