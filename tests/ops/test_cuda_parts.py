"""Operations that GPUs compute by kernels of our own and not by the array library's: parts, products, masks, draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import keys
from server.engine.operators import OPERATORS
from telegrad_protocol.errors import ArgumentError
from tests.gpus import GPUS

from .adapters import EngineAdapter, to_torch
from .harness import Comparison

pytestmark = pytest.mark.gpu
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128]


@pytest.fixture(params=GPUS)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _sources(dtype: torch.dtype) -> list[torch.Tensor]:
    """Row-major, permuted, strided, and of one row."""
    whole = torch.randn(6, 37, 40).mul_(50).to(dtype)
    return [whole, whole.transpose(0, 2), whole[1::2, 3:, ::3], whole[:, :1, 5:]]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Half and single precision as doubles."""
    return tensor.double() if tensor.dtype in (torch.float32, torch.bfloat16) else tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_of_parts_are_pytorchs(engine: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    compared = Comparison(engine)
    for source in _sources(dtype):
        mine = engine.tensor(source)
        parts: list[tuple[str, torch.Tensor, tuple[Any, ...]]] = [
            ("select_scatter", source.select(1, -1), (1, -1)), ("slice_scatter", source[..., 2:9:3], (2, 2, 9, 3)),
            ("slice_scatter", source[-2:], (0, -2, None)), ("diagonal_scatter", source.diagonal(-1, 2, 0), (-1, 2, 0)),
        ]  # fmt: skip
        for name, part, where in parts:
            other = torch.randn(part.shape).mul_(50).to(dtype)
            found = engine.function(name)(mine, engine.tensor(other), *where)
            compared.compare(found, getattr(torch, name)(source, other, *where))
        for arguments in ((3,), (3, 0), (2, 1), (1, -1), (0, 2)):
            found = engine.function("repeat_interleave")(mine, *arguments)
            compared.compare(found, torch.repeat_interleave(source, *arguments))
        for where in ((), (1, 0, -1), (-2, 1, 2)):
            compared.compare(engine.function("diag_embed")(mine, *where), torch.diag_embed(source, *where))
        # PyTorch has no trace of bools and of half precision on the host
        expected = source[0].double().trace().to(dtype) if dtype is torch.bfloat16 else source[0].diagonal().sum()
        compared.compare(engine.function("trace")(engine.tensor(source[0])), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.complex64], ids=str)
def test_products_of_vectors_are_pytorchs(engine: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    compared = Comparison(engine)
    for shape, other_shape, dim in (((40, 3), (40, 3), 1), ((3, 5), (3, 5), 0), ((7, 3, 4), (1, 3, 1), 1)):
        a, b = ((torch.randn(s) * 5).to(dtype) for s in (shape, other_shape))
        expected = torch.cross(_wide(a), _wide(b), dim=dim).to(dtype)
        compared.compare(engine.function("cross")(engine.tensor(a), engine.tensor(b), dim), expected)
        itself = engine.function("cross")(engine.tensor(a), engine.tensor(a), dim)
        assert not np.asarray(engine.numpy(itself), np.complex128).any(), "a vector by itself leaves nothing"
    input, rows, columns = ((torch.randn(s) * 5).to(dtype) for s in ((11, 7), (11,), (7,)))
    for factors in ({}, {"beta": 0}, {"alpha": 3, "beta": 2}, {"alpha": 0}):
        for added in (input, input[:1], input.t().contiguous().t()):
            given = [engine.tensor(t) for t in (added, rows, columns)]
            expected = torch.addr(*map(_wide, (added, rows, columns)), **factors).to(dtype)
            compared.compare(engine.function("addr")(*given, **factors), expected)


def test_what_masks_select_is_pytorchs(engine: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    compared = Comparison(engine)
    for size in (9, 5000, 1 << 20):
        source, mask = torch.randn(size, 3), torch.rand(size) < 0.3
        mine, set_ = engine.tensor(source), engine.tensor(mask)
        compared.compare(engine.function("index")(mine, (set_,)), source[mask])
        compared.compare(engine.function("nonzero")(set_), mask.nonzero())
        column = engine.tensor(source[:, 0])
        compared.compare(engine.function("masked_select")(column, set_), source[:, 0].masked_select(mask))
        for values in (2.0, torch.randn(int(mask.sum()), 3)):
            given = engine.tensor(values) if isinstance(values, torch.Tensor) else values
            expected = source.clone()
            expected[mask] = values if isinstance(values, torch.Tensor) else torch.tensor(values)
            compared.compare(engine.function("index_put")(mine, (set_,), given), expected)
        given = engine.tensor(torch.arange(size, dtype=torch.float32))
        expected = source[:, 0].masked_scatter(mask, torch.arange(size, dtype=torch.float32))
        compared.compare(engine.function("masked_scatter")(engine.tensor(source[:, 0].clone()), set_, given), expected)
        numbers = torch.randint(0, 50, (size,))
        pairs = numbers.view(-1, 1) if size % 2 else numbers.view(-1, 2)
        for mine, theirs in zip(
            engine.function("_unique_rows")(engine.tensor(pairs), False)[1:],
            torch.unique(pairs, dim=0, return_inverse=True, return_counts=True)[1:], strict=True,
        ):  # fmt: skip
            compared.compare(mine, theirs)
        compared.compare(engine.function("bincount")(engine.tensor(numbers)), numbers.bincount())
        counts = torch.randint(0, 4, (size,))
        compared.compare(engine.function("repeat_interleave")(engine.tensor(counts)), torch.repeat_interleave(counts))


def test_draws_are_those_of_the_host(engine: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    host, weights = EngineAdapter(), torch.rand(6, 300)
    mean, std = torch.randn(50, 3), torch.rand(50, 3)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("multinomial", (weights, 1)), ("multinomial", (weights, 7)), ("multinomial", (weights, 7, True)),
        ("multinomial", (weights[0], 2, True)), ("normal", (mean, std)), ("normal", (0.5, std)), ("normal", (mean, 2)),
    ]  # fmt: skip
    for name, arguments in calls:
        drawn = []
        for adapter in (host, engine):
            adapter.activate()
            adapter.context.generators[adapter.device].restore(seed, 0)
            given = [adapter.tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
            drawn.append(to_torch(adapter.numpy(adapter.function(name)(*given))))
        torch.testing.assert_close(drawn[1], drawn[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cross_entropy_of_probabilities_is_pytorchs(engine: EngineAdapter, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    compared = Comparison(engine)
    loss, expected = engine.function("binary_cross_entropy"), torch.nn.functional.binary_cross_entropy
    for shape in ((7,), (64, 10), (3, 5, 1000)):
        p, q = (torch.rand(shape).to(dtype) for _ in range(2))
        p.view(-1)[:2] = torch.tensor([0, 1], dtype=dtype)
        for reduction in ("none", "mean"):
            found = loss(engine.tensor(p), engine.tensor(q), reduction=reduction)
            compared.compare(found, expected(p.double(), q.double(), reduction=reduction).to(dtype))
    for wrong in (torch.tensor([0.5, 1.5]), torch.tensor([float("nan"), 0.5])):
        with pytest.raises(ArgumentError, match="all elements of input should be between 0 and 1"):
            engine.numpy(loss(engine.tensor(wrong), engine.tensor(torch.rand(2))))


RARE = (
    "heaviside", "gcd", "lcm", "logaddexp2", "sinc", "nextafter", "i0", "special_i1", "special_bessel_j0",
    "special_bessel_j1", "special_bessel_y0", "special_bessel_y1", "special_erfcx", "special_ndtr", "special_ndtri",
    "special_entr", "special_xlog1py",
)  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_rare_functions_are_those_of_the_host(engine: EngineAdapter, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    host, op = EngineAdapter(), OPERATORS[name].op
    assert OPERATORS[name].preparers[keys.CUDA], "the array library would compile a kernel when it is first called"
    count = len(op.tensor_positions)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), -float("inf"), float("nan"), 30.0, -30.0])
    kinds = (torch.int64, torch.int32) if name in ("gcd", "lcm") else (torch.float32, torch.float64)
    for dtype in kinds:
        numbers = torch.cat([special.nan_to_num(0, 9, -9), torch.randn(500) * 4]) if dtype in (
            torch.int64, torch.int32) else torch.cat([special, torch.randn(500) * 4, torch.rand(200)])  # fmt: skip
        operands = [numbers[torch.randperm(len(numbers))].to(dtype) for _ in range(count)]
        found = []
        for adapter in (host, engine):
            adapter.activate()
            value = adapter.functional.run(OPERATORS[name], *map(adapter.tensor, operands))
            found.append(to_torch(adapter.numpy(value)))
        tolerance = {torch.float32: 2e-5, torch.float64: 1e-11}.get(dtype, 0)
        torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance, equal_nan=True)
