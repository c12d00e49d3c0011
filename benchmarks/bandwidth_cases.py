"""What ``benchmarks.bandwidth`` runs: operations whose time is that of their memory traffic, by family.

A case has its inputs in one type of elements, and how telegrad's engine and PyTorch call it. To add a family, add a
function that returns cases, and name it in ``CASES``; other modules of cases are named in ``benchmarks.bandwidth``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from telegrad_protocol import dtypes

ELEMENTS = 1 << 26
SIDE = 1 << 13
SQUARE = (SIDE, SIDE)

FP32, BF16 = torch.float32, torch.bfloat16
BOTH = (FP32, BF16)
OURS = {torch.float32: dtypes.float32, torch.bfloat16: dtypes.bfloat16, torch.float16: dtypes.float16}


@dataclass
class Case:
    """One operation on both sides; ``ours`` gets the engine's functions first.

    ``moved`` are the bytes read and written, from the inputs and PyTorch's result; by default those of all of them,
    each element of memory counted once. ``near_copy`` says that the goal also is the bandwidth of a device copy.
    """

    family: str
    name: str
    inputs: Callable[[torch.dtype], list[Any]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    types: tuple[torch.dtype, ...] = BOTH
    moved: Callable[[list[Any], Any], int] | None = None
    at_least: float = 0.97
    near_copy: bool = False


def normal(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], list[Any]]:
    """Makes tensors of standard normal numbers on the GPU."""
    return lambda dtype: [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]


def _pointwise() -> list[Case]:
    flat = (ELEMENTS,)
    functional = torch.nn.functional

    def masked(dtype: torch.dtype) -> list[Any]:
        condition, x, y = normal(flat, flat, flat)(dtype)
        return [condition > 0, x, y]

    def simple(name: str, inputs: Any, ours: Any, theirs: Any) -> Case:
        return Case("pointwise", name, inputs, ours, theirs, near_copy=True)

    return [
        simple("add", normal(flat, flat), lambda F, x, y: F.add(x, y), torch.add),
        simple("mul by a number", normal(flat), lambda F, x: F.mul(x, 1.5), lambda x: x.mul(1.5)),
        simple("exp", normal(flat), lambda F, x: F.exp(x), torch.exp),
        simple("gelu", normal(flat), lambda F, x: F.gelu(x), functional.gelu),
        simple(
            "gelu, tanh", normal(flat), lambda F, x: F.gelu(x, approximate="tanh"),
            lambda x: functional.gelu(x, approximate="tanh"),
        ),
        simple(
            "gelu backward", normal(flat, flat), lambda F, g, x: F._gelu_backward(g, x, approximate="none"),
            torch.ops.aten.gelu_backward,
        ),
        simple("silu", normal(flat), lambda F, x: F.silu(x), functional.silu),
        simple("relu", normal(flat), lambda F, x: F.relu(x), torch.relu),
        simple("where", masked, lambda F, c, x, y: F.where(c, x, y), torch.where),
        simple("add, in place", normal(flat, flat), lambda F, x, y: F.add_(x, y), lambda x, y: x.add_(y)),
    ]  # fmt: skip


def _broadcast() -> list[Case]:
    def simple(name: str, inputs: Any) -> Case:
        return Case("broadcast", name, inputs, lambda F, x, y: F.add(x, y), torch.add, near_copy=True)

    def transposed(dtype: torch.dtype) -> list[Any]:
        return [x.t() for x in normal(SQUARE, SQUARE)(dtype)]

    return [
        simple("add a row", normal(SQUARE, (SIDE,))),
        simple("add a column", normal(SQUARE, (SIDE, 1))),
        simple("add a row of 1,023", normal(((1 << 26) // 1023, 1023), (1023,))),
        simple("add, both transposed", transposed),
        simple("add channels", normal((64, 256, 64, 64), (256, 1, 1))),
    ]


def _copies() -> list[Case]:
    flat = (ELEMENTS,)

    def converted(dtype: torch.dtype) -> list[Any]:
        return normal(flat)(dtype)

    def other(dtype: torch.dtype) -> torch.dtype:
        return FP32 if dtype is BF16 else BF16

    def ours(F: Any, x: Any) -> Any:
        return F._to_copy(x, dtype=dtypes.bfloat16 if x.dtype is dtypes.float32 else dtypes.float32)

    def transposed(dtype: torch.dtype) -> list[Any]:
        return [normal(SQUARE)(dtype)[0].t()]

    def images(dtype: torch.dtype) -> list[Any]:
        return [normal((64, 64, 128, 128))(dtype)[0].permute(0, 2, 3, 1)]

    def heads(dtype: torch.dtype) -> list[Any]:
        return [normal((64, 1024, 16, 64))(dtype)[0].transpose(1, 2)]

    def dense(F: Any, x: Any) -> Any:
        return F._in_layout(x, x.meta.like().strides)

    return [
        Case("copies", "copy", converted, lambda F, x: F.clone(x), torch.clone, near_copy=True),
        Case("copies", "to the other type", converted, ours, lambda x: x.to(other(x.dtype)), near_copy=True),
        Case("copies", "transposing copy", transposed, dense, lambda x: x.contiguous(), at_least=1.0),
        Case("copies", "channels last", images, dense, lambda x: x.contiguous(), at_least=1.0),
        Case("copies", "heads to the front", heads, dense, lambda x: x.contiguous(), at_least=1.0),
        Case("copies", "cat", normal((SIDE // 2, SIDE), (SIDE // 2, SIDE)), lambda F, x, y: F.cat((x, y)), _cat),
    ]


def _cat(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, y))


def _random() -> list[Case]:
    flat = (ELEMENTS,)

    def dropped(dtype: torch.dtype) -> list[Any]:
        return normal(flat)(dtype)

    def masked(dtype: torch.dtype) -> list[Any]:
        grad, x = normal(flat, flat)(dtype)
        return [grad, x > 0]

    def written(inputs: list[Any], result: Any) -> int:
        return int(result.numel() * result.element_size())

    return [
        Case("random", "dropout", dropped, lambda F, x: F.native_dropout(x, 0.1, True), _dropout, near_copy=True),
        Case(
            "random", "dropout backward", masked, lambda F, g, m: F.native_dropout_backward(g, m, 1.25),
            lambda g, m: torch.ops.aten.native_dropout_backward(g, m, 1.25), near_copy=True,
        ),
        Case(
            "random", "rand", dropped, lambda F, x: F.rand_like(x), torch.rand_like, moved=written,
        ),
        Case("random", "randn", dropped, lambda F, x: F.randn_like(x), torch.randn_like, moved=written),
        Case("random", "zeros", dropped, lambda F, x: F.zeros_like(x), torch.zeros_like, moved=written),
    ]  # fmt: skip


def _dropout(x: torch.Tensor) -> Any:
    return torch.ops.aten.native_dropout(x, 0.1, True)


CASES: list[Case] = [*_pointwise(), *_broadcast(), *_copies(), *_random()]
