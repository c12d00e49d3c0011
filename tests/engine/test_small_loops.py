"""Loops in C over few elements give what NumPy gives, to the bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import functional as F
from server.engine.array_library.addresses import loop_of
from server.engine.in_c import small
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import IndexOutOfRangeError, TelegradError
from tests.ops.adapters import TORCH_TO_OURS, EngineAdapter
from tests.support.compilers import needs_calls_in_c

pytestmark = [pytest.mark.filterwarnings("ignore"), needs_calls_in_c]
CASES = 60
TYPES = (torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
Result = list[tuple[np.ndarray[Any, Any], tuple[int, ...]]]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What was worked out for calls is forgotten, with the loops that it is made of."""
    _forget_calls()
    yield
    _forget_calls()


def _forget_calls() -> None:
    for operator in OPERATORS.values():
        operator.clear_caches()


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _tensor(rng: random.Random, numbers: np.random.Generator, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of at most three dimensions, some of one element, with equal elements, NaN, infinities and zeros.

    It is row-major, transposed, reversed by strides of a larger one, or has gaps.
    """
    dtype = dtype or rng.choice(TYPES)
    shape = [rng.choice((1, 2, 3, 4, 17)) for _ in range(rng.randrange(1, 4))]
    plain = torch.from_numpy(numbers.integers(-3, 4, shape) * 0.5)
    if dtype.is_floating_point:
        odd = torch.from_numpy(numbers.choice([0.1, -0.0, 1.0, torch.nan, torch.inf, -torch.inf, 3.3], shape))
        plain = torch.where(torch.from_numpy(numbers.random(shape) < rng.choice((0, 0.3))), odd, plain)
    made = plain.to(dtype)
    return rng.choice((made, made, made.transpose(0, -1), made[..., ::2], made[:1], made.reshape(-1)[0]))


def _index(numbers: np.random.Generator, length: int, shape: tuple[int, ...], wraps: bool = False) -> torch.Tensor:
    return torch.from_numpy(numbers.integers(-length if wraps else 0, length, shape))


def _elementwise(rng: random.Random, numbers: np.random.Generator) -> Call:
    names = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "bitwise_or", "rsub")
    x, name = _tensor(rng, numbers), rng.choice((*names, "neg", "abs", "sqrt", "pow", "clamp", "where", "logical_not"))
    other = rng.choice((x, x.clone(), x[:1] if x.ndim else x, 2, -1.5, True, _tensor(rng, numbers)))
    if name in ("neg", "abs", "sqrt", "logical_not"):
        return name, (x,), {}
    if name == "pow":
        return name, (x, 2), {}
    if name == "clamp":
        return name, (x, rng.choice((None, -1, 0.5)), rng.choice((1, 0.25))), {}
    if name == "where":
        return name, (x > 0, x, rng.choice((x.clone(), 0, 1.5))), {}
    return name, (x, other), {}


def _moving(rng: random.Random, numbers: np.random.Generator) -> Call:
    x = _tensor(rng, numbers)
    dims = tuple(rng.sample(range(x.ndim), rng.randrange(0, x.ndim + 1)))
    dim = rng.randrange(-x.ndim, x.ndim) if x.ndim else 0
    moves = tuple([rng.randrange(-5, 6) for _ in dims])
    return rng.choice((
        ("clone", (x,), {}), ("flip", (x, dims), {}), ("roll", (x, moves, dims), {}),
        ("cat", ((x, x.clone(), x), dim), {}), ("stack", ((x, x.clone()), dim), {}),
        ("constant_pad_nd", (x, (1, 2), 3), {}),
        ("contiguous", (x.transpose(0, -1) if x.ndim else x,), {}), ("masked_fill", (x, x > 0, 1), {}),
        ("_to_copy", (x,), {"dtype": rng.choice(TYPES)}), ("zeros_like", (x,), {}), ("full_like", (x, 1), {}),
    ))  # fmt: skip


def _places(rng: random.Random, numbers: np.random.Generator) -> Call:
    x = _tensor(rng, numbers)
    x = x.reshape(1) if x.ndim == 0 else x
    dim = rng.randrange(x.ndim)
    shape = [rng.randrange(1, size + 1) for size in x.shape]
    length = x.shape[dim] + (rng.random() < 0.1)  # some indices lead nowhere
    index, vector = _index(numbers, length, tuple(shape)), _index(numbers, length, (5,))
    part = x.clone().narrow(dim, 0, 1).expand([5 if d == dim else size for d, size in enumerate(x.shape)])
    pairs = tuple(_index(numbers, size, (2, 3), True) for size in x.shape[: rng.randrange(1, x.ndim + 1)])
    return rng.choice((
        ("gather", (x, dim, index), {}), ("index_select", (x, dim, vector), {}), ("index", (x, pairs), {}),
        ("scatter", (x, dim, index, x.clone()), {}), ("scatter_add", (x, dim, index, x.clone()), {}),
        ("index_add", (x, dim, vector, part), {}), ("index_copy", (x, dim, vector, part), {}),
        ("index_fill", (x, dim, vector, 2), {}), ("index_put", (x, pairs, x.reshape(-1)[0], rng.random() < 0.5), {}),
        ("index_put", (x, (x > 0,), x.reshape(-1)[0]), {}), ("nonzero", (x > 0,), {}),
        ("masked_select", (x, x > 0), {}), ("one_hot", (vector.abs() % 4, 4), {}), ("bincount", (vector,), {}),
    ))  # fmt: skip


def _ordered(rng: random.Random, numbers: np.random.Generator) -> Call:
    x = _tensor(rng, numbers, rng.choice((torch.float32, torch.int64)))
    x = x * 10**12 if x.dtype is torch.int64 and rng.random() < 0.3 else x
    dim = rng.randrange(-x.ndim, x.ndim) if x.ndim else 0
    kept = rng.randrange(1, x.shape[dim] + 1) if x.ndim else 1
    return rng.choice((
        ("sort", (x, dim, rng.random() < 0.5), {"stable": True}), ("argsort", (x, dim), {"stable": True}),
        ("topk", (x, kept, dim, rng.random() < 0.5), {}),
    ))  # fmt: skip


def _factor(rng: random.Random, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Numbers of a shape in rows, in columns, with gaps, or with rows that overlap."""
    wide = torch.randn(*shape[:-1], 2 * shape[-1], dtype=dtype)
    dense = wide[..., : shape[-1]].contiguous()
    layouts = [dense, dense, wide[..., ::2], wide[..., : shape[-1]]]
    if dense.ndim > 1:
        layouts += [dense.mT.contiguous().mT, dense[..., :1, :].expand(shape)]
    return rng.choice(layouts)


def _products(rng: random.Random, numbers: np.random.Generator) -> Call:
    torch.manual_seed(int(numbers.integers(1 << 30)))
    dtype = rng.choice((torch.float32, torch.float64, torch.complex64, torch.complex128))
    b, m, k, n = [rng.choice((1, 2, 3, 5, 8, 17, 33)) for _ in range(4)]
    of = lambda *shape: _factor(rng, dtype, *shape)
    left, power = of(m, k), rng.randrange(1, 12)
    right = rng.choice((left.mT, of(k, n)))  # the square of a matrix is a routine of its own
    grad, rows, weight = of(m, n).contiguous(), rng.choice((None, of(m, k).contiguous())), of(n, k).contiguous()
    return rng.choice((
        ("mm", (left, right), {}), ("mv", (left, of(k)), {}), ("dot", (of(k), of(k)), {}),
        ("bmm", (of(b, m, k), of(b, k, n)), {}), ("addmm", (of(*rng.choice(((n,), (m, n), (1, n), (m, 1)))),
        of(m, k), of(k, n)), {}), ("linear", (rng.choice((of(m, k), of(k), of(b, m, k))), of(n, k)), {}),
        ("linear", (of(m, k).contiguous(), of(n, k), of(n)), {}), ("linalg_vecdot", (left, left.clone()), {}),
        ("linalg_vecdot", (left, left.clone()), {"dim": 0}), ("linalg_matrix_power", (of(b, m, m) / m, power), {}),
        ("_linear_backward", (grad, rows, weight, rng.random() < 0.7), {}),
        ("linalg_cross", (torch.randn(m, 3, dtype=dtype), torch.randn(m, 3, dtype=dtype)), {}),
    ))  # fmt: skip


def _given(adapter: EngineAdapter, item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return adapter.tensor(item)
    if isinstance(item, torch.dtype):
        return TORCH_TO_OURS[item]
    return tuple([_given(adapter, one) for one in item]) if isinstance(item, tuple) else item


def _outcome(adapter: EngineAdapter, call: Call, loops: bool, monkeypatch: pytest.MonkeyPatch) -> Result | type:
    """Elements and strides of the results of a call, with loops in C or without, or what it raises."""
    name, args, keywords = call
    monkeypatch.setattr(small, "is_there", lambda: loops)
    _forget_calls()
    try:
        results = getattr(F, name)(
            *_given(adapter, args), **{key: _given(adapter, one) for key, one in keywords.items()}
        )
    except (*REFUSALS, TelegradError) as error:
        return type(error)
    values = results if isinstance(results, tuple) else (results,)
    return [(adapter.numpy(value), value.meta.strides) for value in values]


@pytest.mark.parametrize(
    "kind", [_elementwise, _moving, _places, _ordered, _products], ids=lambda kind: kind.__name__[1:]
)
def test_calls_are_the_same_to_the_bit(
    kind: Any, adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    taken = 0
    for case in range(CASES):
        call = kind(random.Random(seed + case), np.random.default_rng(seed + case))
        given, expected = (_outcome(adapter, call, loops, monkeypatch) for loops in (True, False))
        assert type(given) is type(expected), (call, given, expected)
        if isinstance(given, type) or isinstance(expected, type):
            assert given is expected, call
            continue
        taken += 1
        for (one, strides), (other, other_strides) in zip(given, expected, strict=True):
            assert (one.dtype, strides) == (other.dtype, other_strides), call
            np.testing.assert_array_equal(one, other, err_msg=str(call))
    assert taken > CASES // 3


@pytest.mark.parametrize("loops", [True, False], ids=["loops", "numpy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_rows_of_one_place_are_added_one_after_the_other_as_pytorch_adds_them(
    dtype: torch.dtype, loops: bool, adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(seed)
    for width in (1, 4):
        x, source = torch.randn(3, width, dtype=dtype), torch.randn(40, width, dtype=dtype)
        index = torch.randint(0, 3, (40,))
        added = _outcome(adapter, ("index_add", (x, 0, index, source), {}), loops, monkeypatch)
        columns = _outcome(adapter, ("index_add", (x.mT, 1, index, source.mT), {}), loops, monkeypatch)
        assert isinstance(added, list) and isinstance(columns, list)
        np.testing.assert_array_equal(added[0][0], x.index_add(0, index, source).numpy())
        np.testing.assert_array_equal(columns[0][0].T, added[0][0])


def test_operands_that_overlap_the_target_are_read_before_it_is_written(adapter: EngineAdapter) -> None:
    whole = torch.arange(8.0)
    value = adapter.tensor(whole)
    F.narrow(value, 0, 1, 6).add_(F.narrow(value, 0, 0, 6))
    expected = whole.clone()
    expected[1:7] += whole[:6]
    torch.testing.assert_close(torch.from_numpy(adapter.numpy(value)), expected)


def test_what_a_product_is_added_to_is_read_before_it_is_written(adapter: EngineAdapter) -> None:
    left, right, added = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    values = [adapter.tensor(tensor) for tensor in (added, left, right)]
    expected = torch.addmm(added, left, right)
    for _ in range(2):
        target = values[0].clone()
        target.addmm_(*values[1:])
        torch.testing.assert_close(torch.from_numpy(adapter.numpy(target)), expected)


def test_indices_that_lead_nowhere_leave_the_target_as_it_is(adapter: EngineAdapter) -> None:
    value, index = adapter.tensor(torch.zeros(4)), adapter.tensor(torch.tensor([0, 4]))
    with pytest.raises(IndexOutOfRangeError, match="4"):
        value.index_fill_(0, index, 1.0)
    assert not adapter.numpy(value).any()


def test_numpys_loops_are_found_for_the_types_that_are_products_here() -> None:
    for function in (np.matmul, np.vecdot):
        assert all([loop_of(function, f"{char}{char}->{char}") for char in "fdFD"])
        assert loop_of(function, "ff->d") is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_products_of_few_elements_are_loops(
    dtype: torch.dtype, adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    launch_of = small.launch_of
    monkeypatch.setattr(small, "launch_of", lambda loop, other: made.append(loop.name) or launch_of(loop, other))
    matrix, vector = adapter.tensor(torch.randn(4, 4, dtype=dtype)), adapter.tensor(torch.randn(4, dtype=dtype))
    calls: list[tuple[str, tuple[Any, ...], str]] = [
        ("mm", (matrix, matrix), "multiply_matrices"), ("mv", (matrix, vector), "multiply_matrices"),
        ("dot", (vector, vector), "multiply_matrices"), ("linear", (matrix, matrix), "multiply_matrices"),
        ("linear", (matrix, matrix, vector), "multiply_and_add"),
        ("addmm", (vector, matrix, matrix), "multiply_and_add"),
        ("linalg_vecdot", (vector, vector), "multiply_vectors"), ("linalg_matrix_power", (matrix, 5), "raise_matrices"),
        ("_linear_backward", (matrix, matrix, matrix, True), "multiply_several"),
    ]  # fmt: skip
    for name, args, _ in calls:
        getattr(F, name)(*args)
    assert made == [loop for _, _, loop in calls]


def test_what_c_is_given_is_looked_at() -> None:
    for words in (b"", b"12345678", bytes(8 * 3), (7).to_bytes(8, "little") + bytes(24)):
        with pytest.raises(ValueError, match="places"):
            small.module.small_launch("add_f32", 1, words, print)
    with pytest.raises(ValueError, match="no loop named"):
        small.module.small_launch("add_f128", 1, bytes(32), print)
    with pytest.raises(TypeError, match="a backend"):
        small.module.small_launch("add_f32", 1, bytes(32), print, None)
