"""Operations that ``benchmarks.cpu`` compares, with the goal of each as a multiple of PyTorch's time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from server.engine.backward import grad
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS
from telegrad_protocol import dtypes

from .kernel_cases import CASES, HALVES, IMAGES, LARGE, SQUARE, Case, normal

functional = torch.nn.functional
_SAME, _HALF, _ANY = 1.1, 3.0, 1.5


def _trained(name: str, shapes: list[tuple[int, ...]], call: Callable[..., Any]) -> Case:
    """The operation and the gradients of its inputs; ``call`` gets the library's functions first."""

    def make() -> list[Any]:
        inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
        return [torch.randn_like(call(functional, *inputs).detach()), *inputs]

    def ours(F: Any, gradient: Any, *inputs: Any) -> Any:
        return grad([call(F, *inputs)], [gradient], list(inputs))

    def theirs(gradient: Any, *inputs: Any) -> Any:
        return torch.autograd.grad(call(functional, *inputs), inputs, gradient)

    return Case(name, make, ours, theirs, records=True)


def _attention(causal: bool, length: int) -> Case:
    heads = (4, 8, length, 64)
    return _trained(
        f"attention, {'causal, ' if causal else ''}T{length}, and gradients", [heads] * 3,
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    )  # fmt: skip


def _embedding() -> Case:
    def make() -> list[Any]:
        return [torch.randn(20_000, 256).requires_grad_(), torch.randint(0, 20_000, (8192,)), torch.randn(8192, 256)]

    def ours(F: Any, weight: Any, places: Any, gradient: Any) -> Any:
        return grad([F.embedding(places, weight)], [gradient], [weight])

    def theirs(weight: Any, places: Any, gradient: Any) -> Any:
        return torch.autograd.grad(functional.embedding(places, weight), weight, gradient)

    return Case("embedding and gradient, 8,192 of 20,000 rows of 256", make, ours, theirs, records=True)


def _adamw() -> Case:
    shapes = [(512, 512)] * 8 + [(512,)] * 8
    settings = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "maximize": False}

    def make() -> list[Any]:
        return [torch.rand(shape) for _ in range(4) for shape in shapes] + [torch.ones(()) for _ in shapes]

    def lists(tensors: tuple[Any, ...]) -> list[Any]:
        size = len(shapes)
        return [tuple(tensors[start : start + size]) for start in range(0, 5 * size, size)]

    def ours(F: Any, *tensors: Any) -> Any:
        operator = OPERATORS["_fused_adamw_"]
        given = dict(zip(("params", "grads", "exp_avgs", "exp_avg_sqs", "state_steps"), lists(tensors), strict=True))
        given |= {**settings, "max_exp_avg_sqs": (), "amsgrad": False, "grad_scale": None, "found_inf": None}
        given["advance"] = True
        return dispatch(operator, tuple([given[param.name] for param in operator.op.params]))

    def theirs(*tensors: Any) -> Any:
        from torch.optim.adamw import adamw

        params, grads, averages, squares, steps = map(list, lists(tensors))
        return adamw(params, grads, averages, squares, [], steps, foreach=True, amsgrad=False, **settings)

    return Case("AdamW, 8 matrices of 512x512", make, ours, theirs)


def _products() -> Iterator[tuple[Case, float]]:
    for label, (dtype, _) in HALVES.items():
        yield Case(
            f"{label} matmul 512x512", normal((512, 512), (512, 512), dtype=dtype), lambda F, a, b: F.matmul(a, b),
            torch.matmul,
        ), _HALF  # fmt: skip
    yield (
        Case("matmul 1024x1024", normal((1024, 1024), (1024, 1024)), lambda F, a, b: F.matmul(a, b), torch.matmul),
        _ANY,
    )


def _halves() -> Iterator[tuple[Case, float]]:
    for label, (dtype, ours) in HALVES.items():
        one, two = normal(LARGE, dtype=dtype), normal(LARGE, LARGE, dtype=dtype)
        affine = normal(LARGE, (1024,), (1024,), dtype=dtype)
        yield Case(f"{label} add", two, lambda F, x, y: F.add(x, y), torch.add), _HALF
        yield Case(f"{label} exp", one, lambda F, x: F.exp(x), torch.exp), _HALF
        yield Case(f"{label} gelu", one, lambda F, x: F.gelu(x), functional.gelu), _HALF
        yield Case(f"{label} sum of rows", one, lambda F, x: F.sum(x, 1), lambda x: x.sum(1)), _HALF
        yield Case(f"{label} softmax", one, lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)), _HALF
        yield Case(
            f"{label} layer_norm", affine, lambda F, x, w, b: F.layer_norm(x, w.shape, w, b),
            lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        ), _HALF  # fmt: skip
        yield (
            Case(f"{label} to float32", one, lambda F, x: F._to_copy(x, dtype=dtypes.float32), lambda x: x.float()),
            _HALF,
        )
        yield (
            Case(
                f"float32 to {label}",
                normal(LARGE),
                lambda F, x, d=ours: F._to_copy(x, dtype=d),
                lambda x, d=dtype: x.to(d),
            ),
            _HALF,
        )


def _passes() -> Iterator[tuple[Case, float]]:
    yield Case("add", normal(LARGE, LARGE), lambda F, x, y: F.add(x, y), torch.add), _ANY
    yield Case("exp", normal(LARGE), lambda F, x: F.exp(x), torch.exp), _ANY
    yield Case("sum of rows", normal(LARGE), lambda F, x: F.sum(x, 1), lambda x: x.sum(1)), _ANY
    yield Case("sum", normal(LARGE), lambda F, x: F.sum(x), torch.sum), _ANY
    yield Case("dropout", normal(LARGE), lambda F, x: F.dropout(x, 0.1), lambda x: functional.dropout(x, 0.1)), _ANY
    yield Case("cat of 2", normal(LARGE, LARGE), lambda F, x, y: F.cat((x, y), 0), lambda x, y: torch.cat((x, y))), _ANY
    yield Case("softmax", normal(LARGE), lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)), _SAME
    yield Case("gelu", normal(LARGE), lambda F, x: F.gelu(x), functional.gelu), _ANY
    yield (
        Case("transposing copy", normal(SQUARE), lambda F, x: F.contiguous(F.t(x)), lambda x: x.t().contiguous()),
        _ANY,
    )
    yield Case(
        "permuting copy", normal(IMAGES), lambda F, x: F.contiguous(F.permute(x, (0, 2, 3, 1))),
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
    ), _ANY  # fmt: skip


def _in_place_and_broadcast() -> Iterator[tuple[Case, float]]:
    """Operands that lie otherwise than the result: in its memory, or in fewer dimensions."""
    for label, dtype, goal in (("float32", torch.float32, _ANY), ("bf16", torch.bfloat16, _HALF)):
        zeros = lambda dtype=dtype: [torch.zeros(LARGE, dtype=dtype) for _ in range(2)]
        row, column = (normal(LARGE, shape, dtype=dtype) for shape in ((1024,), (4096, 1)))
        yield Case(f"{label} add in place", zeros, lambda F, x, y: F.add_(x, y), lambda x, y: x.add_(y)), goal
        yield Case(f"{label} add of a row", row, lambda F, x, y: F.add(x, y), torch.add), goal
        yield Case(f"{label} product with a column", column, lambda F, x, y: F.mul(x, y), torch.mul), goal
        yield (
            Case(f"{label} sum of columns", normal(LARGE, dtype=dtype), lambda F, x: F.sum(x, 0), lambda x: x.sum(0)),
            goal,
        )
        yield Case(f"{label} largest", normal(LARGE, dtype=dtype), lambda F, x: F.amax(x), torch.amax), goal
        yield (
            Case(
                f"{label} clamp", normal(LARGE, dtype=dtype), lambda F, x: F.clamp(x, -1, 1), lambda x: x.clamp(-1, 1)
            ),
            goal,
        )


def _positions() -> Iterator[tuple[Case, float]]:
    """Elements and rows at positions that data gives."""
    places = lambda: [torch.randn(LARGE), torch.randint(0, LARGE[1], LARGE), torch.randn(LARGE)]
    rows = lambda: [torch.randn(LARGE), torch.randint(0, LARGE[0], LARGE[:1]), torch.randn(LARGE)]
    yield Case("gather", places, lambda F, x, i, _: F.gather(x, 1, i), lambda x, i, _: x.gather(1, i)), _ANY
    yield Case("scatter", places, lambda F, x, i, y: F.scatter(x, 1, i, y), lambda x, i, y: x.scatter(1, i, y)), _ANY
    yield (
        Case(
            "scatter_add", places, lambda F, x, i, y: F.scatter_add(x, 1, i, y), lambda x, i, y: x.scatter_add(1, i, y)
        ),
        _ANY,
    )
    yield (
        Case("index_add", rows, lambda F, x, i, y: F.index_add(x, 0, i, y), lambda x, i, y: x.index_add(0, i, y)),
        _ANY,
    )


def cases() -> Iterator[tuple[Case, float]]:
    """Every operation with its goal."""
    yield _trained("linear 1024 of 512 to 512, and gradients", [(1024, 512), (512, 512), (512,)], _linear), _SAME
    for causal in (False, True):
        for length in (128, 512):
            yield _attention(causal, length), _SAME
    yield _trained("layer_norm and gradients", [LARGE, (1024,), (1024,)], _layer_norm), _SAME
    yield _trained("gelu, tanh, and gradient", [LARGE], lambda F, x: F.gelu(x, approximate="tanh")), _SAME
    yield _trained("conv2d 3x3 of 64 to 64, 56x56, B8, and gradients", [(8, 64, 56, 56), (64, 64, 3, 3)], _conv), _ANY
    yield from _convolutions()
    pool = lambda F, x: F.max_pool2d(x, 3, 2, 1, 1, False)
    yield _trained("max_pool2d 3x3/2 of 64, 112x112, B8, and gradient", [(8, 64, 112, 112)], pool), _ANY
    yield _trained("batch_norm and gradients", [IMAGES, (64,), (64,)], _batch_norm), _ANY
    yield _cross_entropy(), _ANY
    yield _embedding(), _ANY
    yield _adamw(), _ANY
    yield from _passes()
    yield from _in_place_and_broadcast()
    yield from _positions()
    yield from _products()
    yield from _halves()


def _convolutions() -> Iterator[tuple[Case, float]]:
    """Layers of other geometry: of images, weights, and the arguments of the convolution."""
    layers: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "1x1 of 256 to 64, 56x56, B4": ((4, 256, 56, 56), (64, 256, 1, 1), {}),
        "3x3/2 of 64 to 128, 56x56, B8": ((8, 64, 56, 56), (128, 64, 3, 3), {"stride": 2, "padding": 1}),
        "3x3 of 512 to 512, 7x7, B8": ((8, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
        "3x3 of 64 to 64 in 4 groups, 28x28, B8": ((8, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
        "3x3 depthwise of 64, 56x56, B8": ((8, 64, 56, 56), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    }
    for label, (images, weights, options) in layers.items():
        call = lambda F, x, weight, options=options: F.conv2d(x, weight, **options)
        yield _trained(f"conv2d {label}, and gradients", [images, weights], call), _ANY


def _linear(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    return F.linear(x, weight, bias)


def _layer_norm(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, (1024,), weight, bias)


def _conv(F: Any, x: Any, weight: Any) -> Any:
    return F.conv2d(x, weight, padding=1)


def _batch_norm(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, None, None, weight, bias, True)


def _cross_entropy() -> Case:
    return next(case for case in CASES if case.name == "cross_entropy and backward")
