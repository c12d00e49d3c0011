"""Functions of an extension on the CPU: what torch/extension.h has, arguments, results, errors, autograd, waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from telegrad import errors


def test_results_are_those_of_pytorch(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    a, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (2, 4), 2))
    x, y = tg.tensor(a), torch.tensor(a)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "uint8"):
        ours, theirs = (x * 9).abs().to(getattr(tg, dtype)), (y * 9).abs().to(getattr(torch, dtype))
        expected = (theirs.double() * 2).to(theirs.dtype)
        assert str(extension.scale(ours).dtype).endswith(dtype)
        assert np.array_equal(extension.scale(ours).double().numpy(), expected.double().numpy())
    assert np.array_equal(extension.floats(x.double()).numpy(), (y.double() + 8).numpy())
    expected = torch.relu(y @ torch.tensor(w).T + torch.tensor(b)).numpy()
    assert np.allclose(extension.affine(x, tg.tensor(w), tg.tensor(b)).numpy(), expected, atol=1e-6)
    assert np.allclose(extension.affine(x, w=tg.tensor(w)).numpy(), a @ w.T, atol=1e-6)
    first, last = extension.pieces(x, [1, 2])
    assert np.array_equal(first.numpy(), a[:1]) and np.array_equal(last.numpy(), a[1:])
    transposed, count, total, dense, text = extension.facts(x, "of ")
    assert np.array_equal(transposed.numpy(), a.T) and (count, dense, text) == (12, True, "of Float")
    assert total == pytest.approx(float(a.sum(dtype=np.float64)), abs=1e-5)
    maps = extension.both(x)
    assert np.array_equal(maps["plus"].numpy(), a + 1) and np.array_equal(maps["minus"].numpy(), 1 - a)
    for sign in (1, -1, 0):  # as many elements as the data say
        assert np.array_equal(extension.positive(x * sign).numpy(), (a * sign)[a * sign > 0])
    assert np.array_equal(extension.blob([1, 2.5]).numpy(), [2.5, 5.0])
    assert extension.typed(x, tg.float64).dtype is tg.float64
    assert extension.typed(x, tg.int32, tg.device("cpu"), 3).tolist() == [[3] * 4] * 3


def test_a_function_of_many_operations_agrees_with_the_same_function_in_pytorch(
    tg: Any, extension: Any, rng: np.random.Generator
) -> None:
    a = rng.random((3, 4)).astype(np.float32)  # above the zeros beside them: topk breaks no ties
    x = torch.tensor(a)
    y = torch.zeros(3, 8)
    y[:, :4] = x
    y[0, -1] = 7
    values, places = y.topk(2, 1)
    y = torch.cat([y, values, places.to(x.dtype)], 1).permute(1, 0).contiguous()
    y += x.max(0, keepdim=True)[0].sum() * 0.5 + torch.arange(3, dtype=x.dtype).mean()
    y = torch.where(y > 3, y.sin(), -y.pow(2)) / torch.sum(y, (0, 1)).abs().add(1)
    expected = y.reshape(-1, 2).flip(0).softmax(-1) * torch.ones(2) + 1 + x[0][1].item()
    assert np.allclose(extension.tour(tg.tensor(a)).numpy(), expected.numpy(), atol=1e-5)


def test_half_precision_is_converted_as_numpy_does_for_every_bit_pattern(tg: Any, extension: Any, seed: int) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    bits = np.random.default_rng(seed).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    between = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, 65519, 65520, 6e-8, 2.98e-8, np.inf])])
    numbers = between[~np.isnan(between)]
    for brain, dtype in ((False, np.float16), (True, ml_dtypes.bfloat16)):
        widened = extension.halves_to_floats(tg.tensor(patterns.astype(np.int32)), brain).numpy()
        assert np.array_equal(widened, patterns.view(dtype).astype(np.float32), equal_nan=True)
        with np.errstate(over="ignore"):
            narrowed = numbers.astype(dtype).view(np.uint16)
        assert np.array_equal(extension.floats_to_halves(tg.tensor(numbers), brain).numpy(), narrowed)


def test_functions_change_and_return_their_arguments(tg: Any, extension: Any) -> None:
    x = tg.zeros(2, 3)
    assert extension.increment_(x) is None
    view = extension.pieces(x, [1])[0]
    view.add_(1)
    assert x.tolist() == [[2.0] * 3, [1.0] * 3]
    assert extension.same(x) is x


def test_operations_of_an_extension_are_differentiated(tg: Any, extension: Any) -> None:
    x, w = tg.ones(2, 3, requires_grad=True), tg.full((4, 3), 2.0, requires_grad=True)
    result = extension.affine(x, w, tg.zeros(4))
    assert result.requires_grad and result.grad_fn is not None
    result.sum().backward()
    assert x.grad.tolist() == [[8.0] * 3] * 2 and w.grad.tolist() == [[2.0] * 3] * 4
    assert not extension.without_grad(x).requires_grad
    assert not extension.scale(x.detach()).requires_grad
    with tg.no_grad():
        assert not extension.affine(x, w, None).requires_grad


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        (0, IndexError, "index 0"), (1, ValueError, "value"), (2, RuntimeError, "runtime"),
        (3, errors.ShapeError, "mm: cannot multiply"), (4, IndexError, "range"),
        (5, RuntimeError, "Expected how != 5 to be true, but got false"),
        (6, NotImplementedError, "no_such_operation"), (7, RuntimeError, "expected scalar type Double but found Float"),
    ],
)  # fmt: skip
def test_exceptions_have_the_types_and_messages_of_pytorch(
    tg: Any, extension: Any, how: int, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        extension.fails(how)
    assert "test_functions.fails" in (raised.value.operation, message) or kind is errors.ShapeError
    assert extension.fails(99) == -1  # an error that C++ catches is none; the session goes on


def test_arguments_that_do_not_fit_are_refused_before_they_are_sent(tg: Any, extension: Any) -> None:
    x, refused = tg.ones(2, 2), "incompatible function arguments"
    calls: list[Callable[[], Any]] = [
        lambda: extension.scale(), lambda: extension.scale(x, "2"), lambda: extension.scale(x, 2.0, 3),
        lambda: extension.scale(x, too=1), lambda: extension.pieces(x, [1.5]), lambda: extension.overloaded(1.5),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=refused):
            call()
    assert (extension.overloaded(1), extension.overloaded("a")) == ("int", "str")
    assert "scale(x: torch.Tensor, by: float = 2.0) -> torch.Tensor\n\nmultiplies" in extension.scale.__doc__
    assert (extension.answer, extension.__doc__) == (42, "what the tests call")


def test_a_function_that_returns_nothing_refuses_operands_where_the_program_would_catch_it(
    tg: Any, extension: Any
) -> None:
    matrix, vector = tg.ones(2, 2), tg.ones(2)
    caught = []
    for operand in (matrix, vector, matrix, vector):
        try:
            extension.require_matrix(operand)
        except RuntimeError as error:
            caught.append((operand is vector, "expected a matrix, got 1 dimensions" in str(error)))
    assert caught == [(True, True)] * 2


def test_calls_whose_results_are_known_do_not_wait(tg: Any, extension: Any) -> None:
    x = tg.ones(2, 2)
    session = x._session
    before = session.round_trips
    for _ in range(3):
        extension.increment_(x)  # it returns nothing
    assert session.round_trips == before
    extension.scale.waits = False
    results = [extension.scale(x, 2.0) for _ in range(4)]
    assert session.round_trips == before + 1
    assert [result.sum().item() for result in results] == [32.0] * 4
    other = tg.ones(3)
    assert extension.scale(other).shape == (3,)  # another kind of call
    extension.grows.waits = False
    extension.grows(other)
    with pytest.raises(errors.ExtensionError, match=r"other shapes.*waits = True"):
        extension.grows(other).sum().item()
    extension.grows.waits = True
    assert extension.grows(other).shape[0] + 1 == extension.grows(other).shape[0]


def test_tensors_that_an_extension_keeps_stay_what_they_are(tg: Any, extension: Any) -> None:
    extension.swap_kept.waits = False
    tensors = [tg.full((3,), float(number)) for number in range(6)]
    before = [extension.swap_kept(tensor) for tensor in tensors[:1]] + [extension.swap_kept(t) for t in tensors[1:]]
    del tensors
    assert [t.tolist() for t in before[1:]] == [[float(number)] * 3 for number in range(5)]
    extension.drop_kept()
    extension.sometimes.waits = False
    x = tg.ones(2)
    assert [extension.sometimes(x).tolist() for _ in range(4)] in (
        [[4.0] * 2, [3.0] * 2] * 2,
        [[3.0] * 2, [4.0] * 2] * 2,
    )


def test_values_that_an_extension_drops_are_freed(tg: Any, extension: Any) -> None:
    from server.engine.extensions.library import runtime

    x = tg.ones(64, 64)
    extension.tour(x)
    before = tg.memory_allocated("cpu") if hasattr(tg, "memory_allocated") else None
    held = len(runtime().values)
    for _ in range(3):
        extension.tour(x)
    assert len(runtime().values) == held == 0
    assert before is None or tg.memory_allocated("cpu") == before


def test_operators_of_a_library_are_there_by_name(tg: Any, extension: Any) -> None:
    x = tg.ones(3)
    assert tg.ops.telegrad_tests.scale(x, 3.0).tolist() == [3.0] * 3
    assert tg.ops.telegrad_tests.both_added(x, x).tolist() == [2.0] * 3
    repeated = tg.ops.telegrad_tests.repeated  # the schema has defaults, and what is given by name alone
    results = [repeated(x), repeated(x, 2.0), repeated(x, times=2), repeated(x, 2.0, times=3), repeated(x, by=5.0)]
    assert [result.tolist() for result in results] == [[3.0] * 3, [2.0] * 3, [9.0] * 3, [8.0] * 3, [5.0] * 3]


def _written_out(t: Any, x: Any, w: Any, b: Any, h: Any, c: Any) -> Any:
    parts = t.nn.functional.linear(t.cat([h, x], dim=1), w, b).chunk(3, dim=1)
    after = c + t.nn.functional.elu(parts[2]) * t.sigmoid(parts[0])
    return t.tanh(after) * t.sigmoid(parts[1]), after


def test_a_recurrent_cell_with_its_gradients(tg: Any, extension: Any, rng: np.random.Generator) -> None:
    class Cell(tg.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, *operands: Any) -> Any:
            results = extension.cell(*operands)
            ctx.save_for_backward(*(results[1:] + [operands[1]]))
            return results[0], results[1]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            found = extension.cell_gradients(*[one.contiguous() for one in gradients], *ctx.saved_tensors)
            return tuple(found[:5])

    arrays = [rng.standard_normal(shape) for shape in ((4, 3), (6, 5), (1, 6), (4, 2), (4, 2))]
    ours, theirs = [[t.tensor(array, requires_grad=True) for array in arrays] for t in (tg, torch)]
    (new_h, new_c), expected = Cell.apply(*ours), _written_out(torch, *theirs)
    for mine, other in zip((new_h, new_c, *_written_out(tg, *ours)), expected * 2, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-10)
    (new_h.sum() + new_c.pow(2).sum()).backward()
    (expected[0].sum() + expected[1].pow(2).sum()).backward()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-9)
    assert tg.autograd.gradcheck(Cell.apply, ours)
