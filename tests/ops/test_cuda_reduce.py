"""Reductions on a GPU against float64 references: shapes, layouts and values that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine.dispatcher import call as call_operator
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.meta import Meta

from .adapters import TORCH_TO_OURS, EngineAdapter, to_torch
from .harness import flatten

pytestmark = pytest.mark.gpu

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
COMPLEX = (torch.complex64, torch.complex128)
EPSILON = {dtype: torch.finfo(dtype).eps for dtype in (*FLOATS, *COMPLEX)}
LAYOUTS: list[tuple[tuple[int, ...], Any]] = [
    ((), None), ((1,), 0), ((0,), None), ((0, 3), 0), ((3, 0), 0), ((7,), 0), ((1025,), None), ((300_007,), 0),
    ((33, 65), 0), ((33, 65), 1), ((5, 4097), -1), ((4097, 5), 0), ((2000, 3), 0), ((3, 2000), 1), ((4, 1, 5), 1),
    ((70, 9000), 0), ((70, 9000), 1), ((6, 7, 49), (0, 2)), ((6, 8, 64), (0, 2)), ((5, 60, 3), 1),
    ((3, 4, 5, 6), (1, 3)), ((2, 3, 4, 5, 6), (0, 2, 4)), ((20_000, 3), 1), ((9000, 16), 1), ((100_001, 8), 0),
    ((37, 1023), 1), ((9, 2046), 1), ((70, 201), 1),
]  # fmt: skip


FEW = LAYOUTS[8:12] + LAYOUTS[17:18]


def cases(*dtypes: torch.dtype) -> list[Any]:
    """All layouts in the types that matter most, a few in all others."""
    return [
        pytest.param(shape, dim, dtype, id=f"{shape}-{dim}-{str(dtype).removeprefix('torch.')}")
        for dtype in dtypes
        for shape, dim in (LAYOUTS if dtype in (torch.float32, torch.bfloat16) else FEW)
    ]


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture
def seed(seed: int) -> int:
    """The printed seed, which PyTorch draws from too."""
    torch.manual_seed(seed)
    return seed


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random numbers of a type."""
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0 if dtype is torch.uint8 else -50, 50, shape, dtype=dtype)


def views(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """The same shape in memory as rows, misaligned, permuted, with gaps, and expanded."""
    found = [drawn(shape, dtype)]
    size = found[0].numel()
    found.append(drawn((size + 3,), dtype)[3:].view(shape))
    if len(shape) > 1:
        found.append(drawn(shape[::-1], dtype).permute(*reversed(range(len(shape)))))
        found.append(drawn((*shape[:-1], 2 * shape[-1] + 1), dtype)[..., 1::2])
        found.append(drawn((*shape[:-1], shape[-1] + 8), dtype)[..., : shape[-1]])
        found.append(drawn((1, *shape[1:]), dtype).expand(shape))
    return found


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the type that references are computed in."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def call(gpu: EngineAdapter, name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    gpu.activate()
    converted = {k: gpu.convert(v) for k, v in kwargs.items()}
    found = flatten(gpu.function(name)(gpu.tensor(tensor), *args, **converted))
    return [to_torch(gpu.numpy(value)) for value in found]


def close(found: torch.Tensor, expected: torch.Tensor, terms: torch.Tensor | float) -> None:
    """Equal within a few roundings of the result's type, and those of the terms that it is a sum of."""
    assert found.shape == expected.shape
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        assert torch.equal(found, expected.to(found.dtype))
        return
    single = min(EPSILON[found.dtype], 2**-23)
    slack = 16 if single > 1e-8 else 512  # the reference has no more bits than a double
    allowed = 2 * EPSILON[found.dtype] * expected.abs() + slack * single * terms
    allowed = torch.as_tensor(allowed).nan_to_num(0, 0, 0).double()
    reference = expected.to(found.dtype).to(torch.complex128 if found.dtype.is_complex else torch.float64)
    actual = found.to(reference.dtype)
    same = (actual == reference) | (actual.isnan() & reference.isnan())
    off = (actual - reference).abs()
    assert bool((same | (off <= allowed)).all()), f"off by {off.nan_to_num().max()}, allowed {allowed.max()}"


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *INTEGERS, *COMPLEX))
def test_sums_and_counts(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: Any, dtype: torch.dtype) -> None:
    for x in views(shape, dtype):
        ref = wide(x)
        terms = ref.abs().double().sum(dim) if dim is not None else ref.abs().double().sum()
        for keepdim in (False, True):
            expected = ref.sum(dim, keepdim) if dim is not None else ref.sum(dim=tuple(range(x.ndim)), keepdim=keepdim)
            kept = terms.reshape(expected.shape)
            close(call(gpu, "sum", x, dim, keepdim)[0], expected, kept)
        close(call(gpu, "count_nonzero", x, dim)[0], torch.count_nonzero(x, dim), 0)
        for name in ("any", "all"):
            function = getattr(torch, name)
            if isinstance(dim, tuple) or dim is None:
                expected = function(x.bool(), dim=dim) if dim is not None else function(x.bool())
            else:
                expected = function(x.bool(), dim)
            assert torch.equal(call(gpu, name, x, dim)[0].bool(), expected)
        if dtype.is_floating_point or dtype.is_complex:
            expected = ref.mean(dim) if dim is not None else ref.mean()
            count = max(x.numel() // max(expected.numel(), 1), 1)
            close(call(gpu, "mean", x, dim)[0], expected, terms.reshape(expected.shape) / count)


@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *INTEGERS))
def test_extrema(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: Any, dtype: torch.dtype) -> None:
    reduced = shape if dim is None else [shape[d] for d in ((dim,) if isinstance(dim, int) else dim)]
    if 0 in reduced:
        return
    for x in views(shape, dtype):
        if dtype.is_floating_point and x.numel() > 50:
            x = torch.where(torch.rand(x.shape) < 1e-3, torch.tensor(float("nan"), dtype=dtype), x)
        all_dims = tuple(range(x.ndim)) if dim is None else dim
        source = x.byte() if dtype is torch.bool else x
        for name in ("amax", "amin"):
            expected = getattr(torch, name)(source, all_dims)
            close(call(gpu, name, x, all_dims)[0].to(source.dtype), expected, 0)
        if isinstance(dim, int):
            for name, find in (("max", np.argmax), ("min", np.argmin)):
                values, indices = call(gpu, name, x, dim)
                places = torch.from_numpy(np.asarray(find(source.double().numpy(), axis=dim)))
                assert torch.equal(indices, places)
                chosen = source.gather(dim, places.unsqueeze(dim)).squeeze(dim)
                close(values.to(source.dtype), chosen, 0)
                if dtype is torch.bool:
                    with pytest.raises(DTypeError, match="bool"):
                        call(gpu, f"arg{name}", x, dim)
                else:
                    assert torch.equal(call(gpu, f"arg{name}", x, dim)[0], places)
        if dim is None and x.numel() and dtype is not torch.bool:
            assert call(gpu, "argmax", x)[0].item() == np.argmax(source.double().numpy())
            assert call(gpu, "argmin", x)[0].item() == np.argmin(source.double().numpy())
            low, high = call(gpu, "aminmax", x)
            close(low.to(source.dtype), source.amin(), 0)
            close(high.to(source.dtype), source.amax(), 0)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(("shape", "dim", "dtype"), cases(*FLOATS, *COMPLEX))
def test_spreads_and_norms(gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: Any, dtype: torch.dtype) -> None:
    for x in views(shape, dtype):
        offset = 0 if dtype in (torch.float16, torch.bfloat16) else 100
        shifted = x + offset
        for name in ("var", "std"):
            expected = getattr(torch, name)(wide(shifted), dim, correction=1)
            close(call(gpu, name, shifted, dim, correction=1)[0], expected, 8 * expected.abs() + offset)
        for p in (0, 1, 2, 3.5, float("inf"), float("-inf")):
            if x.numel() == 0 and (p < 0 or p == float("inf")):
                continue
            expected = torch.linalg.vector_norm(wide(x), p, dim)
            close(call(gpu, "norm", x, p, dim)[0], expected, expected.abs())
        if not dtype.is_complex and dim is not None:
            expected = torch.logsumexp(wide(x), dim)
            close(call(gpu, "logsumexp", x, dim)[0], expected, expected.abs() + 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_nan(gpu: EngineAdapter, seed: int, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    rows = torch.tensor(
        [[inf, 1, 2], [-inf, 1, 2], [inf, -inf, 0], [nan, 1, inf], [-inf] * 3, [inf] * 3, [0.0, -0.0, 0], [nan] * 3]
    ).to(dtype)
    long = rows.repeat_interleave(3000, 1)
    for x in (rows, rows.t().contiguous().t(), long):
        ref = x.double()
        for name in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "nansum"):
            close(call(gpu, name, x, 1)[0], getattr(torch, name)(ref, 1), 0)
        for name in ("argmax", "argmin"):
            assert torch.equal(call(gpu, name, x, 1)[0], getattr(torch, name)(ref, 1))
        close(call(gpu, "var", x, 1)[0], ref.var(1), 1)


def test_results_in_other_types(gpu: EngineAdapter, seed: int) -> None:
    x = drawn((70, 130), torch.float32) * 3
    for theirs in (torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64):
        expected = x.to(theirs).sum(1, dtype=theirs) if theirs is not torch.bool else x.bool().any(1)
        found = call(gpu, "sum", x, 1, dtype=theirs)[0]
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-1)
    flags = torch.rand(10, 9) < 0.9
    assert torch.equal(call(gpu, "prod", flags, 1)[0], flags.long().prod(1))


def test_results_into_given_tensors(gpu: EngineAdapter, seed: int) -> None:
    x, out = drawn((33, 70), torch.float32), torch.zeros(140, 2)[::2, 1]
    gpu.activate()
    target = gpu.tensor(out)
    call_operator(OPERATORS["sum.out"], (gpu.tensor(x), (0,)), {"out": target})
    close(to_torch(gpu.numpy(target)), x.double().sum(0), x.abs().double().sum(0))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((3_000_001,), None), ((5000, 700), 0), ((9, 400_003), 1)], ids=str)
def test_results_are_the_same_every_time(
    gpu: EngineAdapter, seed: int, shape: tuple[int, ...], dim: Any, dtype: torch.dtype
) -> None:
    x = drawn(shape, dtype)
    gpu.activate()
    value = gpu.tensor(x)
    for name in ("sum", "var", "mean"):
        first = gpu.numpy(gpu.function(name)(value, dim)).tobytes()
        assert all(gpu.numpy(gpu.function(name)(value, dim)).tobytes() == first for _ in range(5))


@pytest.mark.parametrize("dtype", (torch.uint8, torch.bfloat16), ids=str)
def test_more_elements_than_32_bits_count(gpu: EngineAdapter, seed: int, dtype: torch.dtype) -> None:
    gpu.activate()
    backend = gpu.backends[gpu.device]
    rows, columns = (1 << 16) + 1, (1 << 15) + 8
    value = backend.empty(Meta.of((rows, columns), TORCH_TO_OURS[dtype], gpu.device))
    array = value.array
    array[...] = 1
    array[rows - 2, columns - 3] = 3
    functional = gpu.functional
    total = float(gpu.numpy(functional.sum(value, dtype=gpu.convert(torch.float64))))
    assert total == rows * columns + 2
    assert int(gpu.numpy(functional.argmax(value))) == (rows - 2) * columns + columns - 3
    by_row = gpu.numpy(functional.argmax(value, 1))
    assert by_row[rows - 2] == columns - 3 and by_row.sum() == columns - 3
    by_column = gpu.numpy(functional.argmax(value, 0))
    assert by_column[columns - 3] == rows - 2 and by_column.sum() == rows - 2
