"""What ``benchmarks.bandwidth`` runs of rows and of indexing: softmax, norms, losses over classes, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .bandwidth_cases import ELEMENTS, SIDE, SQUARE, Case, normal

aten = torch.ops.aten
functional = torch.nn.functional
_WIDTH = 1024
_ROWS = ELEMENTS // _WIDTH
_VOCABULARY = 50257
_TALL = (_ROWS, _WIDTH)
_WORDS = (ELEMENTS // _VOCABULARY, _VOCABULARY)


def _softmax() -> list[Case]:
    def backward(name: str, shape: tuple[int, int]) -> Case:
        theirs = getattr(aten, f"_{name}_backward_data")

        def inputs(dtype: torch.dtype) -> list[Any]:
            grad, x = normal(shape, shape)(dtype)
            return [grad, getattr(torch, name)(x, -1)]

        return Case(
            "softmax", f"{name} backward, {shape[0]}x{shape[1]}", inputs,
            lambda F, g, y: getattr(F, f"_{name}_backward_data")(g, y, -1, g.dtype),
            lambda g, y: theirs(g, y, -1, g.dtype),
        )  # fmt: skip

    def forward(name: str, shape: tuple[int, int], dim: int = -1) -> Case:
        return Case(
            "softmax", f"{name} of {'columns' if dim == 0 else 'rows'}, {shape[0]}x{shape[1]}", normal(shape),
            lambda F, x: getattr(F, name)(x, dim), lambda x: getattr(torch, name)(x, dim),
        )  # fmt: skip

    shapes = [SQUARE, (ELEMENTS >> 14, 1 << 14), _TALL, _WORDS, (1 << 20, 64)]
    return [
        *(forward("softmax", shape) for shape in shapes),
        forward("softmax", SQUARE, 0),
        forward("log_softmax", SQUARE),
        backward("softmax", SQUARE),
        *(backward("log_softmax", shape) for shape in (SQUARE, _TALL, _WORDS)),
    ]


def _norms() -> list[Case]:
    def saved(shape: tuple[int, int]) -> Callable[[torch.dtype], list[Any]]:
        def inputs(dtype: torch.dtype) -> list[Any]:
            x, weight, bias, grad = normal(shape, shape[1:], shape[1:], shape)(dtype)
            _, mean, rstd = torch.native_layer_norm(x, shape[1:], weight, bias, 1e-5)
            return [grad, x, mean.float(), rstd.float(), weight, bias]

        return inputs

    def theirs(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
        return aten.native_layer_norm_backward(g, x, weight.shape, mean, rstd, weight, bias, [True] * 3)

    found = []
    for shape in (_TALL, SQUARE, (ELEMENTS // 768, 768)):
        label = f"{shape[0]}x{shape[1]}"
        found += [
            Case(
                "layer norm", f"forward, {label}", normal(shape, shape[1:], shape[1:]),
                lambda F, x, w, b: F.layer_norm(x, w.shape, w, b),
                lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
            ),
            Case(
                "layer norm", f"all gradients, {label}", saved(shape),
                lambda F, g, x, mean, rstd, w, b: F._layer_norm_gradients(g, x, mean, rstd, w, w.shape), theirs,
            ),
        ]  # fmt: skip
    found.append(
        Case(
            "rms norm", "forward", normal(_TALL, _TALL[1:]), lambda F, x, w: F.rms_norm(x, w.shape, w),
            lambda x, w: functional.rms_norm(x, w.shape, w),
        )
    )  # fmt: skip
    return found


def _cross_entropy() -> list[Case]:
    def inputs(shape: tuple[int, int]) -> Callable[[torch.dtype], list[Any]]:
        return lambda dtype: [
            torch.randn(shape, device="cuda", dtype=dtype), torch.randint(0, shape[1], shape[:1], device="cuda"),
        ]  # fmt: skip

    def saved(shape: tuple[int, int]) -> Callable[[torch.dtype], list[Any]]:
        def made(dtype: torch.dtype) -> list[Any]:
            x, target = inputs(shape)(dtype)
            logarithms = torch.log_softmax(x, 1)
            log_sum = (x[:, 0].float() - logarithms[:, 0].float()).contiguous()
            one, count = (torch.full((), n, device="cuda", dtype=dtype) for n in (1.0, float(shape[0])))
            return [one, x, target, log_sum, logarithms, count, count.float()]

        return made

    def ours(F: Any, grad: Any, x: Any, target: Any, log_sum: Any, logarithms: Any, count: Any, total: Any) -> Any:
        return F._cross_entropy_backward(grad, x, target, None, log_sum, total, "mean", -100, 0.0)

    def theirs(grad: Any, x: Any, target: Any, log_sum: Any, logarithms: Any, count: Any, total: Any) -> Any:
        own = aten.nll_loss_backward(grad, logarithms, target, None, 1, -100, count)
        return aten._log_softmax_backward_data(own, logarithms, 1, x.dtype)

    def least(tensors: list[Any], result: Any) -> int:
        return 2 * int(result.numel()) * int(result.element_size())

    return [
        case
        for shape in (SQUARE, _TALL, _WORDS)
        for case in (
            Case(
                "cross-entropy", f"forward, {shape[0]}x{shape[1]}", inputs(shape),
                lambda F, x, t: F.cross_entropy(x, t), functional.cross_entropy,
            ),
            Case("cross-entropy", f"backward, {shape[0]}x{shape[1]}", saved(shape), ours, theirs, moved=least),
        )
    ]  # fmt: skip


def _embedding() -> list[Case]:
    def inputs(dtype: torch.dtype) -> list[Any]:
        return [torch.randint(0, _VOCABULARY, (_ROWS,), device="cuda"), *normal((_VOCABULARY, _WIDTH))(dtype)]

    def grads(dtype: torch.dtype) -> list[Any]:
        return [*normal(_TALL)(dtype), torch.randint(0, _VOCABULARY, (_ROWS,), device="cuda")]

    return [
        Case("embedding", "forward", inputs, lambda F, i, w: F.embedding(i, w), functional.embedding),
        Case(
            "embedding", "backward", grads, lambda F, g, i: F.embedding_dense_backward(g, i, _VOCABULARY, -1, False),
            lambda g, i: aten.embedding_dense_backward(g, i, _VOCABULARY, -1, False),
        ),
    ]  # fmt: skip


def _indexing() -> list[Case]:
    def spread(dim: int) -> Callable[[torch.dtype], list[Any]]:
        return lambda dtype: [
            torch.randn(SQUARE, device="cuda", dtype=dtype), torch.randint(0, SIDE, SQUARE, device="cuda"),
        ]  # fmt: skip

    def parts(dim: int) -> Callable[[torch.dtype], list[Any]]:
        return lambda dtype: [
            torch.randn(SQUARE, device="cuda", dtype=dtype), torch.randint(0, SIDE, (SIDE,), device="cuda"),
        ]  # fmt: skip

    def sources(dtype: torch.dtype) -> list[Any]:
        return [*spread(1)(dtype), torch.randn(SQUARE, device="cuda", dtype=dtype)]

    def rows(dtype: torch.dtype) -> list[Any]:
        return [*parts(0)(dtype), torch.randn(SQUARE, device="cuda", dtype=dtype)]

    return [
        *(
            Case(
                "indexing", f"gather, dimension {dim}", spread(dim), lambda F, x, i, d=dim: F.gather(x, d, i),
                lambda x, i, d=dim: torch.gather(x, d, i),
            )
            for dim in (0, 1)
        ),
        *(
            Case(
                "indexing", f"index_select, dimension {dim}", parts(dim),
                lambda F, x, i, d=dim: F.index_select(x, d, i), lambda x, i, d=dim: torch.index_select(x, d, i),
            )
            for dim in (0, 1)
        ),
        *(
            Case(
                "indexing", f"scatter_add, dimension {dim}", sources,
                lambda F, x, i, s, d=dim: F.scatter_add(x, d, i, s),
                lambda x, i, s, d=dim: torch.scatter_add(x, d, i, s),
            )
            for dim in (0, 1)
        ),
        Case(
            "indexing", "scatter", sources, lambda F, x, i, s: F.scatter(x, 1, i, s),
            lambda x, i, s: torch.scatter(x, 1, i, s),
        ),
        Case(
            "indexing", "index_add", rows, lambda F, x, i, s: F.index_add(x, 0, i, s),
            lambda x, i, s: torch.index_add(x, 0, i, s),
        ),
        Case("indexing", "x[i]", parts(0), lambda F, x, i: F.index(x, [i]), lambda x, i: x[i]),
        Case(
            "indexing", "index_put, accumulating", rows, lambda F, x, i, s: F.index_put(x, [i], s, True),
            lambda x, i, s: torch.index_put(x, [i], s, True),
        ),
    ]  # fmt: skip


CASES: list[Case] = [*_softmax(), *_norms(), *_cross_entropy(), *_embedding(), *_indexing()]
