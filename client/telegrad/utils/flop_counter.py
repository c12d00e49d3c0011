"""Counts the floating-point operations of products, convolutions and attention: ``torch.utils.flop_counter``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.ops import aten

from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]
Shape = Sequence[int]
flop_registry: Final[dict[Any, Callable[..., int]]] = {}
"""By operator: what computes the number of operations from the shapes of arguments and result."""


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that enters a formula for operators.

    It gets the arguments with shapes in the place of tensors, and ``out_shape``; with ``get_raw`` the tensors
    themselves, and ``out_val``.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        entered = formula if get_raw else _on_shapes(formula)
        for target in targets if isinstance(targets, (list, tuple)) else (targets,):
            flop_registry[target] = entered
        return formula

    return register


def _on_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    def run(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        given, named, out_shape = tree_map(_shape_of, (args, kwargs, out_val))
        return formula(*given, out_shape=out_shape, **named)

    return run


def _shape_of(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value


@register_flop_formula(aten.mm)
def mm_flop(a_shape: Shape, b_shape: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Count a product of matrices: (m, k) @ (k, n)."""
    (m, k), (_, n) = a_shape, b_shape
    return m * n * 2 * k


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any) -> int:
    """Count a product of matrices; what is added is not counted."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any) -> int:
    """Count a batch of products of matrices: (b, m, k) @ (b, k, n)."""
    (b, m, k), (_, _, n) = a_shape, b_shape
    return b * m * n * 2 * k


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any) -> int:
    """Count a batch of products; what is added is not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape: Shape, w_shape: Shape, out_shape: Shape, transposed: bool = False) -> int:
    """Count a convolution: each element of the result, or of the input if transposed, meets each weight of a filter."""
    places = math.prod((x_shape if transposed else out_shape)[2:])
    first, second, *kernel = w_shape
    return places * math.prod(kernel) * x_shape[0] * first * second * 2


@register_flop_formula(aten.convolution)
def conv_flop(
    x_shape: Shape, w_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """Count a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


@register_flop_formula(aten.convolution_backward)
def conv_backward_flop(
    grad_out_shape: Shape, x_shape: Shape, w_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any,
    transposed: bool, _output_padding: Any, _groups: int, output_mask: Sequence[bool], out_shape: Any = None,
) -> int:  # fmt: skip
    """Count the gradients of a convolution that are wanted: each takes as many operations as the convolution."""
    once = conv_flop_count(x_shape, w_shape, grad_out_shape, transposed)
    return once * (bool(output_mask[0]) + bool(output_mask[1]))


def sdpa_flop_count(query_shape: Shape, key_shape: Shape, value_shape: Shape) -> int:
    """Count attention: scores, and the sum of values that they weigh."""
    b, h, s_q, d_q = query_shape
    s_k, d_v = key_shape[2], value_shape[3]
    return b * h * s_q * s_k * 2 * (d_q + d_v)


_ATTENTION: Final = (
    aten._scaled_dot_product_flash_attention_for_cpu, aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_efficient_attention,
)  # fmt: skip
_ATTENTION_BACKWARD: Final = (
    aten._scaled_dot_product_flash_attention_for_cpu_backward, aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_efficient_attention_backward,
)  # fmt: skip


@register_flop_formula(_ATTENTION, get_raw=True)
def sdpa_flop(query: Tensor, key: Tensor, value: Tensor, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Count attention; on a CPU it counts nothing, as in PyTorch."""
    return sdpa_flop_count(query.shape, key.shape, value.shape) if query.is_cuda else 0


@register_flop_formula(_ATTENTION_BACKWARD, get_raw=True)
def sdpa_backward_flop(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    """Count the gradients of attention: the scores again, and products for those of scores, values, queries, keys."""
    if not query.is_cuda:
        return 0
    b, h, s_q, d_q = map(int, query.shape)
    s_k, d_v = int(key.shape[2]), int(value.shape[3])
    return b * h * s_q * s_k * 2 * (3 * d_q + 2 * d_v)


class FlopCounterMode(TorchDispatchMode):
    """A block that counts floating-point operations, of backward passes in it too, by module.

    ``depth`` is how deep modules are shown in the table that ``display`` prints at the end; ``custom_mapping`` has
    formulas for further operators, as ``register_flop_formula`` takes them.
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        super().__init__()
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        own = custom_mapping or {}
        self.flop_registry = {
            **flop_registry, **{k: v if getattr(v, "_get_raw", False) else _on_shapes(v) for k, v in own.items()},
        }  # fmt: skip
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self) -> int:
        """Return the number of all operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Return the numbers by module and operator; ``Global`` is the whole."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Return the numbers as a table."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            level = 0 if module == "Global" else module.count(".") + 1
            if level > depth:
                continue
            counts = self.flop_counts[module]
            for name, count in [(" " * level + module, sum(counts.values())), *[
                (" " * level + f" - {operator}", count) for operator, count in counts.items()
            ]]:  # fmt: skip
                rows.append((name, _in_units(count), f"{100 * count / total:.2f}%"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
        return "\n".join([lines[0], "  ".join(["-" * width for width in widths]), *lines[1:]])

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self.display:
            print(self.get_table(self.depth))
        self.mod_tracker.__exit__(kind, error, trace)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        formula = self.flop_registry.get(func.overloadpacket)
        count = 0 if formula is None else formula(*args, **named, out_val=result)
        if count:
            for module in self.mod_tracker.parents:
                self.flop_counts[module][func.overloadpacket] += count
        return result


def _in_units(count: int) -> str:
    for size, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.3f}{suffix}"
    return str(count)
