"""What ``benchmarks.kernels`` runs: one operation, its inputs, and how telegrad and PyTorch call it.

Large cases hold 4 Mi elements (16 MiB in float32), more than any cache; small ones are those of a small network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from telegrad_protocol import dtypes

aten = torch.ops.aten
HALVES = {"fp16": (torch.float16, dtypes.float16), "bf16": (torch.bfloat16, dtypes.bfloat16)}


@dataclass
class Case:
    """One operation on both sides; ``ours`` gets the engine's functions first."""

    name: str
    inputs: Callable[[], list[Any]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    records: bool = False


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], list[Any]]:
    """Makes tensors of standard normal numbers."""
    return lambda: [torch.randn(shape).to(dtype) for shape in shapes]


LARGE = (4096, 1024)
SQUARE = (2048, 2048)
IMAGES = (16, 64, 64, 64)


def _unary(name: str, public: str | None = None) -> Case:
    public = public or name
    return Case(name, normal(LARGE), lambda F, x: getattr(F, public)(x), getattr(torch, public, None))


def _softmax() -> list[Case]:
    def saved() -> list[Any]:
        return [torch.randn(LARGE), torch.softmax(torch.randn(LARGE), -1)]

    def masked() -> list[Any]:
        return [torch.randn(LARGE).masked_fill_(torch.rand(LARGE) < 0.5, -torch.inf)]

    def saved_logarithms() -> list[Any]:
        return [torch.randn(LARGE), torch.log_softmax(torch.randn(LARGE), -1)]

    return [
        Case("softmax", normal(LARGE), lambda F, x: F.softmax(x, -1), lambda x: torch.softmax(x, -1)),
        Case("softmax of 64 columns", normal((65536, 64)), lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)),
        Case("softmax of 10 columns", normal((400_000, 10)), lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)),
        Case("softmax down columns", normal(LARGE), lambda F, x: F.softmax(x, 0), lambda x: torch.softmax(x, 0)),
        Case("softmax of dimension 1 of images", normal(IMAGES), lambda F, x: F.softmax(x, 1), lambda x: x.softmax(1)),
        Case("softmax, half masked", masked, lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)),
        Case("log_softmax", normal(LARGE), lambda F, x: F.log_softmax(x, -1), lambda x: torch.log_softmax(x, -1)),
        Case(
            "log_softmax of large scores", lambda: [torch.randn(LARGE) * 10], lambda F, x: F.log_softmax(x, -1),
            lambda x: torch.log_softmax(x, -1),
        ),
        Case(
            "softmax backward", saved, lambda F, g, y: F._softmax_backward_data(g, y, -1, dtypes_of(g)),
            lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float32),
        ),
        Case(
            "log_softmax backward", saved_logarithms,
            lambda F, g, y: F._log_softmax_backward_data(g, y, -1, dtypes_of(g)),
            lambda g, y: aten._log_softmax_backward_data(g, y, -1, torch.float32),
        ),
    ]  # fmt: skip


def dtypes_of(value: Any) -> Any:
    """The engine's type of a value."""
    return value.dtype


def _cross_entropy() -> list[Case]:
    def inputs(rows: int, classes: int) -> list[Any]:
        return [torch.randn(rows, classes), torch.randint(0, classes, (rows,))]

    def trained(rows: int, classes: int) -> list[Any]:
        logits, target = inputs(rows, classes)
        return [logits.requires_grad_(), target]

    def backward(F: Any, x: Any, t: Any) -> Any:
        from server.engine.backward import grad

        return grad([F.cross_entropy(x, t)], [None], [x])

    def theirs(x: Any, t: Any) -> Any:
        return torch.autograd.grad(torch.nn.functional.cross_entropy(x, t), x)

    return [
        Case(
            "cross_entropy", lambda: inputs(*LARGE), lambda F, x, t: F.cross_entropy(x, t),
            torch.nn.functional.cross_entropy,
        ),
        Case("cross_entropy and backward", lambda: trained(*LARGE), backward, theirs, records=True),
        Case("cross_entropy and backward, 50,257 classes", lambda: trained(64, 50257), backward, theirs, records=True),
    ]  # fmt: skip


def _norms() -> list[Case]:
    functional = torch.nn.functional

    def layer() -> list[Any]:
        return [torch.randn(LARGE), torch.randn(LARGE[1]), torch.randn(LARGE[1])]

    def saved() -> list[Any]:
        x, weight, bias = layer()
        _, mean, rstd = torch.native_layer_norm(x, (LARGE[1],), weight, bias, 1e-5)
        return [torch.randn(LARGE), x, mean, rstd, weight, bias]

    def ours(F: Any, g: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
        return F._layer_norm_gradients(g, x, mean, rstd, weight, weight.shape)

    def images() -> list[Any]:
        return [torch.randn(IMAGES), torch.randn(64), torch.randn(64)]

    return [
        Case(
            "layer_norm", layer, lambda F, x, w, b: F.layer_norm(x, w.shape, w, b),
            lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        ),
        Case(
            "layer_norm of rows far from zero", lambda: [layer()[0] + 100, *layer()[1:]],
            lambda F, x, w, b: F.layer_norm(x, w.shape, w, b), lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        ),
        Case(
            "layer_norm backward, three gradients", saved, ours,
            lambda g, x, m, r, w, b: aten.native_layer_norm_backward(g, x, w.shape, m, r, w, b, [True] * 3),
        ),
        Case(
            "rms_norm", layer, lambda F, x, w, b: F.rms_norm(x, w.shape, w),
            lambda x, w, b: functional.rms_norm(x, w.shape, w),
        ),
        Case(
            "group_norm", images, lambda F, x, w, b: F.group_norm(x, 8, w, b),
            lambda x, w, b: functional.group_norm(x, 8, w, b),
        ),
        Case(
            "batch_norm, training", images, lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        ),
    ]  # fmt: skip


def _reductions() -> list[Case]:
    found = []
    for name in ("sum", "mean", "var", "amax", "argmax"):
        for label, dim in (("rows", 1), ("columns", 0), ("all", None)):
            if dim is None and name == "amax":
                continue
            args = () if dim is None else (dim,)
            found.append(
                Case(
                    f"{name}, {label}", normal(LARGE), _calling(name, args), lambda x, n=name, a=args: getattr(x, n)(*a)
                )
            )
    found.append(Case("sum of dimensions 0, 2, 3", normal(IMAGES), _calling("sum", ((0, 2, 3),)), _images_sum))
    found.append(Case("sum of 10 columns", normal((400_000, 10)), _calling("sum", (1,)), lambda x: x.sum(1)))
    found.append(Case("amax of 64 columns", normal((65536, 64)), _calling("amax", (1,)), lambda x: x.amax(1)))
    found.append(Case("norm", normal(LARGE), _calling("norm", ()), lambda x: x.norm()))
    found.append(Case("logsumexp", normal(LARGE), _calling("logsumexp", (1,)), lambda x: x.logsumexp(1)))
    return found


def _images_sum(x: Any) -> Any:
    return x.sum((0, 2, 3))


def _calling(name: str, args: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda F, x: getattr(F, name)(x, *args)


def _scans_and_copies() -> list[Case]:
    return [
        Case("cumsum along rows", normal(LARGE), lambda F, x: F.cumsum(x, 1), lambda x: x.cumsum(1)),
        Case("cumsum down columns", normal(LARGE), lambda F, x: F.cumsum(x, 0), lambda x: x.cumsum(0)),
        Case("cumsum of one row", normal((1 << 22,)), lambda F, x: F.cumsum(x, 0), lambda x: x.cumsum(0)),
        Case("transposing copy", normal(SQUARE), lambda F, x: F.contiguous(F.t(x)), lambda x: x.t().contiguous()),
        Case(
            "permuting copy, (16, 64, 64, 64) to (0, 2, 3, 1)", normal(IMAGES),
            lambda F, x: F.contiguous(F.permute(x, (0, 2, 3, 1))), lambda x: x.permute(0, 2, 3, 1).contiguous(),
        ),
        Case(
            "heads: (16, 256, 16, 64) with 1 and 2 exchanged, copied", normal((16, 256, 16, 64)),
            lambda F, x: F.contiguous(F.transpose(x, 1, 2)), lambda x: x.transpose(1, 2).contiguous(),
        ),
        Case(
            "adding a transposed matrix", normal(SQUARE, SQUARE), lambda F, x, y: F.add(x, F.t(y)),
            lambda x, y: x + y.t(),
        ),
    ]  # fmt: skip


def _pointwise() -> list[Case]:
    functional = torch.nn.functional
    plain = ("exp", "log1p", "tanh", "sigmoid", "erf", "sqrt", "relu", "abs", "sin", "rsqrt", "reciprocal")
    found = [_unary(name) for name in plain]
    found += [
        Case("gelu", normal(LARGE), lambda F, x: F.gelu(x), functional.gelu),
        Case(
            "gelu, tanh", normal(LARGE), lambda F, x: F.gelu(x, approximate="tanh"),
            lambda x: functional.gelu(x, approximate="tanh"),
        ),
        Case(
            "gelu backward", normal(LARGE, LARGE), lambda F, g, x: F._gelu_backward(g, x, approximate="none"),
            aten.gelu_backward,
        ),
        Case("silu", normal(LARGE), lambda F, x: F.silu(x), functional.silu),
        Case("leaky_relu", normal(LARGE), lambda F, x: F.leaky_relu(x), functional.leaky_relu),
        Case("elu", normal(LARGE), lambda F, x: F.elu(x), functional.elu),
        Case("hardswish", normal(LARGE), lambda F, x: F.hardswish(x), functional.hardswish),
        Case("mish", normal(LARGE), lambda F, x: F.mish(x), functional.mish),
        Case("smooth_l1_loss", normal(LARGE, LARGE), lambda F, x, y: F.smooth_l1_loss(x, y), functional.smooth_l1_loss),
        Case("softplus", normal(LARGE), lambda F, x: F.softplus(x), functional.softplus),
        Case(
            "relu backward", normal(LARGE, LARGE), lambda F, g, y: F._relu_backward(g, y),
            lambda g, y: aten.threshold_backward(g, y, 0),
        ),
        Case("clamp", normal(LARGE), lambda F, x: F.clamp(x, -1.0, 1.0), lambda x: x.clamp(-1, 1)),
        Case("clamp_min", normal(LARGE), lambda F, x: F.clamp(x, min=0.5), lambda x: x.clamp(min=0.5)),
        Case("pow 2.5", normal(LARGE), lambda F, x: F.pow(x, 2.5), lambda x: x.pow(2.5)),
        Case(
            "where", lambda: [torch.randn(LARGE) > 0, torch.randn(LARGE), torch.randn(LARGE)],
            lambda F, c, x, y: F.where(c, x, y), torch.where,
        ),
        Case("add", normal(LARGE, LARGE), lambda F, x, y: F.add(x, y), torch.add),
        Case("add a row", normal(LARGE, (1024,)), lambda F, x, y: F.add(x, y), torch.add),
        Case("addcmul", normal(LARGE, LARGE, LARGE), lambda F, x, y, z: F.addcmul(x, y, z), torch.addcmul),
        Case("lerp", normal(LARGE, LARGE), lambda F, x, y: F.lerp(x, y, 0.3), lambda x, y: x.lerp(y, 0.3)),
    ]  # fmt: skip
    return found


def _random() -> list[Case]:
    shape = LARGE
    return [
        Case("rand", list, lambda F: F.rand(shape), lambda: torch.rand(shape)),
        Case("randn", list, lambda F: F.randn(shape), lambda: torch.randn(shape)),
        Case("randint", list, lambda F: F.randint(100, shape), lambda: torch.randint(100, shape)),
        Case("dropout", normal(LARGE), lambda F, x: F.dropout(x, 0.1), lambda x: torch.nn.functional.dropout(x, 0.1)),
    ]


def _half_precision() -> list[Case]:
    found = []
    for label, (dtype, ours) in HALVES.items():
        halves = normal(LARGE, dtype=dtype)
        found += [
            Case(f"{label} add", normal(LARGE, LARGE, dtype=dtype), lambda F, x, y: F.add(x, y), torch.add),
            Case(f"{label} exp", halves, lambda F, x: F.exp(x), torch.exp),
            Case(f"{label} gelu", halves, lambda F, x: F.gelu(x), torch.nn.functional.gelu),
            Case(f"{label} sum of rows", halves, lambda F, x: F.sum(x, 1), lambda x: x.sum(1)),
            Case(f"{label} softmax", halves, lambda F, x: F.softmax(x, -1), lambda x: x.softmax(-1)),
            Case(
                f"{label} layer_norm", normal(LARGE, (1024,), (1024,), dtype=dtype),
                lambda F, x, w, b: F.layer_norm(x, w.shape, w, b),
                lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b),
            ),
            Case(f"{label} to float32", halves, lambda F, x: F._to_copy(x, dtype=dtypes.float32), lambda x: x.float()),
            Case(
                f"float32 to {label}", normal(LARGE), lambda F, x, d=ours: F._to_copy(x, dtype=d),
                lambda x, d=dtype: x.to(d),
            ),
        ]  # fmt: skip
    return found


def _small() -> list[Case]:
    """The operations of a training step of the MLP 784-128-10 at batch 128."""
    hidden, classes = (128, 128), (128, 10)

    def labelled() -> list[Any]:
        return [torch.randn(classes).requires_grad_(), torch.randint(0, 10, (128,))]

    def entropy(F: Any, x: Any, t: Any) -> Any:
        from server.engine.backward import grad

        return grad([F.cross_entropy(x, t)], [None], [x])

    return [
        Case("128x128 relu", normal(hidden), lambda F, x: F.relu(x), torch.relu),
        Case(
            "128x128 relu backward", normal(hidden, hidden), lambda F, g, y: F._relu_backward(g, y),
            lambda g, y: aten.threshold_backward(g, y, 0),
        ),
        Case(
            "128x128 linear", normal(hidden, hidden, (128,)), lambda F, x, w, b: F.linear(x, w, b),
            torch.nn.functional.linear,
        ),
        Case("128x128 sum of columns", normal(hidden), lambda F, x: F.sum(x, (0,)), lambda x: x.sum(0)),
        Case("128x10 sum of columns", normal(classes), lambda F, x: F.sum(x, (0,)), lambda x: x.sum(0)),
        Case("128x10 log_softmax", normal(classes), lambda F, x: F.log_softmax(x, 1), lambda x: x.log_softmax(1)),
        Case("128x10 softmax", normal(classes), lambda F, x: F.softmax(x, 1), lambda x: x.softmax(1)),
        Case(
            "128x10 cross_entropy", lambda: [t.detach() for t in labelled()], lambda F, x, t: F.cross_entropy(x, t),
            torch.nn.functional.cross_entropy,
        ),
        Case(
            "128x10 cross_entropy and backward", labelled, entropy,
            lambda x, t: torch.autograd.grad(torch.nn.functional.cross_entropy(x, t), x), records=True,
        ),
        Case("128x128 add", normal(hidden, hidden), lambda F, x, y: F.add(x, y), torch.add),
        Case(
            "128x128 layer_norm", normal(hidden, (128,), (128,)), lambda F, x, w, b: F.layer_norm(x, w.shape, w, b),
            lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b),
        ),
    ]  # fmt: skip


CASES: list[Case] = [
    *_softmax(), *_cross_entropy(), *_norms(), *_reductions(), *_scans_and_copies(), *_pointwise(), *_random(),
    *_half_precision(), *_small(),
]  # fmt: skip
