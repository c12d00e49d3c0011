"""Large operations on several threads: the same results as on one, for every type, layout and kind of task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from server.engine.device import cancellation, threads

from .adapters import EngineAdapter, to_torch

FLOATS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 3e-3, torch.bfloat16: 2e-2}


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Three threads, whatever the machine has; the names of those that were at work on Python's pieces.

    "True" is among them if any operation was in pieces.
    """
    names: set[str] = set()
    run, run_loop, run_units = threads.run, threads.run_loop, threads.run_units

    def noted(task: Callable[[int], None], pieces: int) -> None:
        def work(piece: int) -> None:
            names.add(threading.current_thread().name)
            task(piece)

        names.add(f"{pieces > 1}")
        run(work, pieces)

    def noted_loop(loop: Any, calls: Any, calls_blas: bool = False) -> None:
        names.add(f"{len(calls) > 1}")
        run_loop(loop, calls, calls_blas)

    def noted_units(loop: Any, shares: Any, *given: Any) -> None:
        names.add(f"{len(shares) > 1}")
        run_units(loop, shares, *given)

    monkeypatch.setattr(threads, "count", lambda: 3)
    monkeypatch.setattr(threads, "run_units", noted_units)
    monkeypatch.setattr(threads, "run", noted)
    monkeypatch.setattr(threads, "run_loop", noted_loop)
    yield names
    threads.stop()


def numbers(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def call(adapter: EngineAdapter, name: str, *args: Any, **options: Any) -> list[torch.Tensor]:
    given = [adapter.tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    result = adapter.function(name)(*given, **options)
    return [to_torch(adapter.numpy(value)) for value in (result if isinstance(result, tuple) else (result,))]


def agree(results: list[torch.Tensor], expected: Any, tolerance: float) -> None:
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(result.double(), wanted.double(), rtol=tolerance, atol=tolerance)


def alone(monkeypatch: pytest.MonkeyPatch, work: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(threads, "count", lambda: 1)
        return work()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["rows", "transposed", "row added", "column added", "number added"])
def test_element_wise_operations_agree_in_every_type_and_layout(
    adapter: EngineAdapter, rng: Any, seen: set[str], dtype: torch.dtype, layout: str
) -> None:
    x = numbers(rng, 701, 997, dtype=dtype)
    other = {
        "rows": numbers(rng, 701, 997), "transposed": numbers(rng, 997, 701).t(), "row added": numbers(rng, 997),
        "column added": numbers(rng, 701, 1), "number added": torch.tensor(2.5),
    }[layout].to(dtype)  # fmt: skip
    tolerance = FLOATS[dtype]
    agree(call(adapter, "add", x, other, alpha=2), x.double() + 2 * other.double(), tolerance * 10)
    agree(call(adapter, "exp", other.expand(701, 997)), other.double().expand(701, 997).exp(), tolerance * 40)
    agree(call(adapter, "mul", x, 0.5), x.double() * 0.5, tolerance)
    target = adapter.tensor(x.clone())
    adapter.function("add_")(target, adapter.tensor(other))
    agree([to_torch(adapter.numpy(target))], x.double() + other.double(), tolerance * 10)
    assert torch.equal(call(adapter, "gt", x, other)[0], x > other)
    assert "True" in seen


def test_integers_and_truth_values_agree(adapter: EngineAdapter, rng: Any) -> None:
    x, y = (torch.from_numpy(rng.integers(-100, 100, (300_007,))).to(torch.int32) for _ in range(2))
    assert torch.equal(call(adapter, "mul", x, y)[0], x * y)
    assert torch.equal(call(adapter, "where", x > 0, x, y)[0], torch.where(x > 0, x, y))
    assert torch.equal(call(adapter, "bitwise_and", x, 7)[0], x & 7)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(611, 400, 300), (90, 2000, 170)])
def test_linear_and_its_gradients_agree(adapter: EngineAdapter, rng: Any, dtype: torch.dtype, shape: Any) -> None:
    rows, inputs, outputs = shape
    x, weight, bias = (numbers(rng, *s, dtype=dtype) for s in ((2, rows, inputs), (outputs, inputs), (outputs,)))
    wide = [t.double().requires_grad_() for t in (x, weight, bias)]
    expected = TF.linear(*wide)
    tolerance = FLOATS[dtype] * inputs**0.5
    agree(call(adapter, "linear", x, weight, bias), expected.detach(), tolerance)
    grad = numbers(rng, 2, rows, outputs, dtype=dtype)
    gradients = torch.autograd.grad(expected, wide, grad.double())
    agree(call(adapter, "_linear_backward", grad, x, weight, True), gradients, FLOATS[dtype] * rows)
    as_matrices = grad.flatten(0, 1), x.flatten(0, 1)
    expected = (gradients[0].flatten(0, 1), *gradients[1:])
    agree(call(adapter, "_linear_backward", *as_matrices, weight, True), expected, FLOATS[dtype] * rows)
    for shape in ((1, outputs), (rows, 1), (2, 1, outputs)):
        added = numbers(rng, *shape, dtype=dtype)
        agree(call(adapter, "linear", x, weight, added), (wide[0] @ wide[1].T + added.double()).detach(), tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["plain", "causal", "bool mask", "float mask", "grouped"])
@pytest.mark.parametrize("length", [70, 301])
def test_attention_and_its_gradients_agree(
    adapter: EngineAdapter, rng: Any, dtype: torch.dtype, kind: str, length: int
) -> None:
    shared = 2 if kind == "grouped" else 4
    query = numbers(rng, 3, length, 4, 24, dtype=dtype).transpose(1, 2)
    key, value = (numbers(rng, 3, shared, length + 5, 24, dtype=dtype) for _ in range(2))
    mask = None
    if kind == "bool mask":
        mask = torch.from_numpy(rng.random((length, length + 5)) < 0.7)
        mask[3] = False
    elif kind == "float mask":
        mask = numbers(rng, 3, 1, length, length + 5, dtype=dtype)
    wide = [t.double().requires_grad_() for t in (query, key, value)]
    expected = TF.scaled_dot_product_attention(
        wide[0], *[t.repeat_interleave(4 // shared, 1) for t in wide[1:]],
        attn_mask=mask if mask is None or mask.dtype is torch.bool else mask.double(), is_causal=kind == "causal",
    )  # fmt: skip
    expected = expected.nan_to_num()
    scale = 24**-0.5
    output, logsumexp = call(adapter, "_attention", query, key, value, mask, kind == "causal", scale, True)
    agree([output], expected.detach(), FLOATS[dtype])
    grad = numbers(rng, 3, 4, length, 24, dtype=dtype)
    gradients = torch.autograd.grad(expected, wide, grad.double())
    operands = (grad, query, key, value, mask, output, logsumexp, kind == "causal", scale)
    agree(call(adapter, "_attention_backward", *operands), tuple(g.nan_to_num() for g in gradients), 10 * FLOATS[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_give_the_same_bits_on_any_number_of_threads(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    x, grad = (numbers(rng, 3000, 257, dtype=dtype) for _ in range(2))
    weight, bias = numbers(rng, 257, dtype=dtype), numbers(rng, 257, dtype=dtype)

    def work() -> list[torch.Tensor]:
        normalized = call(adapter, "_layer_norm", x, (257,), weight, bias, 1e-5)
        probabilities = call(adapter, "softmax", x, -1)
        of_type = adapter.convert(dtype)
        return [
            *normalized, *probabilities, *call(adapter, "log_softmax", x, -1),
            *call(adapter, "_softmax_backward_data", grad, probabilities[0], -1, of_type),
            *call(adapter, "_layer_norm_gradients", grad, x, *normalized[1:], weight, (257,)),
            *call(adapter, "gelu", x), *call(adapter, "_gelu_backward", grad, x, approximate="tanh"),
            *call(adapter, "silu", x),
        ]  # fmt: skip

    for first, second in zip(work(), alone(monkeypatch, work), strict=True):
        assert torch.equal(first.nan_to_num(), second.nan_to_num())


def test_an_error_of_any_thread_is_raised_and_the_threads_go_on() -> None:
    begun = threading.Barrier(2, timeout=20)

    def fail(piece: int) -> None:
        if piece < 2:
            begun.wait()  # two threads are at work
        raise ValueError(f"piece {piece}")

    for _ in range(3):
        with pytest.raises(ValueError, match="piece"):
            threads.run(fail, 8)
    done: list[int] = []
    threads.run(done.append, 50)
    assert sorted(done) == list(range(50))


def test_work_is_ended_between_two_pieces() -> None:
    class Ended(Exception): ...

    first = threading.current_thread()
    is_requested, is_ended = threading.Event(), threading.Event()

    def end() -> None:
        is_ended.set()
        raise Ended

    done: list[int] = []

    def work(piece: int) -> None:
        done.append(piece)
        if piece == 4:  # one thread has this one
            cancellation.request(end)
            is_requested.set()
        elif piece > 4:  # the first thread looks before its next piece, of which the others leave it some
            assert is_requested.wait(20)
            assert threading.current_thread() is first or is_ended.wait(20)

    with pytest.raises(Ended):
        threads.run(work, 10_000)
    assert len(done) < 10_000
    assert not cancellation.requested


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 2)])
def test_convolutions_and_their_gradients_agree(
    adapter: EngineAdapter, rng: Any, seen: set[str], dtype: torch.dtype, stride: int, groups: int
) -> None:
    x, weight = numbers(rng, 5, 24, 37, 41, dtype=dtype), numbers(rng, 32, 24 // groups, 3, 3, dtype=dtype) / 8
    wide = [t.double().requires_grad_() for t in (x, weight)]
    expected = TF.conv2d(*wide, stride=stride, padding=1, groups=groups)
    pairs = ((stride, stride), (1, 1), (1, 1))
    agree(call(adapter, "convolution", x, weight, None, *pairs, False, (0, 0), groups), expected, FLOATS[dtype] * 4)
    assert "True" in seen
    grad = numbers(rng, *expected.shape, dtype=dtype)
    by_input, by_weight = torch.autograd.grad(expected, wide, grad.double())
    found = call(adapter, "_convolution_weight_backward", grad, x, (3, 3), *pairs, groups, False)
    agree(found, by_weight, FLOATS[dtype] * 2000)
    rest = [(size - 1) % stride for size in x.shape[2:]]
    found = call(adapter, "convolution", grad, weight, None, *pairs, True, tuple(rest), groups)
    agree(found, by_input, FLOATS[dtype] * 20)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("is_affine", [False, True])
def test_batch_normalization_and_its_gradients_agree(
    adapter: EngineAdapter, rng: Any, offset: float, is_affine: bool
) -> None:
    x, grad = numbers(rng, 9, 37, 31, 33) + offset, numbers(rng, 9, 37, 31, 33)
    weight, bias = (numbers(rng, 37), numbers(rng, 37)) if is_affine else (None, None)
    wide = [t.double().requires_grad_() for t in (x, weight, bias) if t is not None]
    expected = TF.batch_norm(wide[0], None, None, *wide[1:], training=True)
    result, mean, var, rstd = call(adapter, "_batch_norm", x, weight, bias, 1e-5)
    agree([result, var], (expected.detach(), x.double().var((0, 2, 3), correction=0)), 1e-4)
    agree([mean], x.double().mean((0, 2, 3)), 1e-6 * (1 + offset))
    gradients = torch.autograd.grad(expected, wide, grad.double())
    found = call(adapter, "_batch_norm_gradients", grad, x, mean, rstd, weight)
    # Far from 0 a mean has an error of 3e-5, which counts as often as gradients do not add up to nothing.
    agree(found[: len(wide)], gradients, 2e-2 if offset else 2e-4)


@pytest.mark.parametrize("padding", [-1, 7])
def test_gradients_of_embeddings_agree(adapter: EngineAdapter, rng: Any, padding: int) -> None:
    grad, places = numbers(rng, 40, 100, 67), torch.from_numpy(rng.integers(0, 300, (40, 100)))
    found = call(adapter, "embedding_dense_backward", grad, places, 300, padding, False)
    expected = torch.ops.aten.embedding_dense_backward(grad.double(), places, 300, padding, False)
    agree(found, expected, 1e-4)
    with pytest.raises(IndexError, match="300 is out of range"):
        call(adapter, "embedding_dense_backward", grad, torch.full((40, 100), 300), 300, -1, False)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("maximize", [False, True])
def test_steps_of_adam_follow_pytorchs(adapter: EngineAdapter, rng: Any, name: str, maximize: bool) -> None:
    params = [numbers(rng, 300, 700), numbers(rng, 5)]
    wide = [p.double().clone().requires_grad_() for p in params]
    settings: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-8, "maximize": maximize, "amsgrad": False}
    optimizer = (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(wide, foreach=False, **settings)
    ours = [adapter.tensor(p.clone()) for p in params]
    averages, squares = ([adapter.tensor(torch.zeros_like(p)) for p in params] for _ in range(2))
    steps = [adapter.tensor(torch.zeros(())) for _ in params]
    for _ in range(4):
        # Where gradient and decay cancel each other the first step's sign is that of a rounding.
        grads = [torch.copysign(g.abs() + 1, g) for g in (numbers(rng, *p.shape) for p in params)]
        for p, g in zip(wide, grads, strict=True):
            p.grad = g.double()
        optimizer.step()
        given = [
            tuple(ours),
            tuple(adapter.tensor(g) for g in grads),
            tuple(averages),
            tuple(squares),
            (),
            tuple(steps),
        ]
        adapter.function(f"_fused_{name}_")(
            *given, beta1=0.9, beta2=0.999, grad_scale=None, found_inf=None, advance=True, **settings
        )
    agree([to_torch(adapter.numpy(p)) for p in ours], tuple(p.detach() for p in wide), 1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_copies_and_conversions_agree(adapter: EngineAdapter, rng: Any, dtype: torch.dtype, order: Any) -> None:
    x = numbers(rng, 130, 70, 131, dtype=dtype)
    value = adapter.function("permute")(adapter.tensor(x), order)
    assert torch.equal(to_torch(adapter.numpy(adapter.function("contiguous")(value))), x.permute(order))
    target = torch.float32 if dtype is not torch.float32 else torch.bfloat16
    assert torch.equal(call(adapter, "_to_copy", x, dtype=adapter.convert(target))[0], x.to(target))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3001, 701), (3, 700_001), (1_400_003,)])
def test_sums_agree(adapter: EngineAdapter, rng: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = numbers(rng, *shape, dtype=dtype)
    for dims in (-1, None):
        expected = x.double().sum() if dims is None else x.double().sum(dims)
        magnitude = x.abs().double().sum() if dims is None else x.abs().double().sum(dims)
        scale = 1 + 1e-4 * magnitude  # a sum near zero is as exact as what was added
        (found,) = call(adapter, "sum", x) if dims is None else call(adapter, "sum", x, dims)
        agree([found / scale], expected / scale, FLOATS[dtype] * 30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_agrees(adapter: EngineAdapter, rng: Any, dtype: torch.dtype) -> None:
    x, target = numbers(rng, 4001, 157, dtype=dtype) * 4, torch.from_numpy(rng.integers(0, 157, 4001))
    x[7] += 500
    for reduction in ("mean", "none"):
        found = call(adapter, "cross_entropy", x, target, reduction=reduction)
        agree(found, TF.cross_entropy(x.double(), target, reduction=reduction), FLOATS[dtype] * 2)
