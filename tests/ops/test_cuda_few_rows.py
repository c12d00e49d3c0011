"""Our kernels for few rows, of attention and of products, against float64, in every layout that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SIZES = [  # batch, query heads, shared heads, rows, columns, width, depth
    (1, 12, 12, 1, 256, 64, 64), (2, 3, 3, 3, 513, 33, 20), (1, 8, 2, 2, 1030, 128, 128), (3, 2, 2, 7, 3000, 72, 100),
    (1, 2, 2, 1, 1, 256, 8), (1, 6, 1, 2, 5000, 256, 256), (2, 5, 5, 16, 40, 8, 16),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, heads between rows, with a gap after each row."""
    batch, heads, rows, width = tensor.shape
    whole = torch.zeros(batch, rows, heads, width + 3, dtype=tensor.dtype)
    part = whole[..., 1 : 1 + width].transpose(1, 2)
    return part.copy_(tensor)


def _masks(scores: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    """Masks of all kinds; with some, a row sees nothing."""
    taken = torch.rand(scores) < 0.7
    taken[0, 0, 0] = False
    added = torch.randn(scores[-2:]).to(dtype)
    added[0, : scores[-1] // 2] = -torch.inf
    return {
        "none": None, "causal": None, "bool": taken, "keys": taken[:, :1, :1], "added": added,
        "strided": torch.randn(scores[-1], scores[-2]).to(dtype).T,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "keys", "added", "strided"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_of_few_rows(engine: EngineAdapter, seed: int, sizes: Any, kind: str, dtype: Any) -> None:
    from server.engine import functional as F

    torch.manual_seed(seed)
    engine.activate()
    batch, heads, shared, rows, columns, width, depth = sizes
    shapes = (batch, heads, rows, width), (batch, shared, columns, width), (batch, shared, columns, depth)
    made = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    mask = _masks((batch, heads, rows, columns), dtype)[kind]
    options = {"is_causal": kind == "causal", "enable_gqa": heads != shared}
    wide = None if mask is None else mask if mask.dtype is torch.bool else mask.double()
    expected = torch.nn.functional.scaled_dot_product_attention(*[one.double() for one in made], wide, **options)
    results = []
    for layout in (torch.Tensor.contiguous, _apart):
        values = [engine.tensor(layout(one)) for one in made]
        given = None if mask is None else engine.tensor(mask)
        found = engine.numpy(F.scaled_dot_product_attention(*values, given, **options))
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(to_torch(found).double(), expected, rtol=0, atol=TOLERANCES[dtype] * scale)
        results.append(found)
    assert results[0].dtype == results[1].dtype


def test_infinities_and_nan_of_few_rows(engine: EngineAdapter, seed: int) -> None:
    from server.engine import functional as F

    torch.manual_seed(seed)
    engine.activate()
    for which, number in [(which, number) for which in range(3) for number in (torch.inf, torch.nan)]:
        made = [torch.rand(1, 2, rows, 40) + 0.1 for rows in (2, 700, 700)]
        made[which][0, 0, 1, 3] = number
        expected = torch.nn.functional.scaled_dot_product_attention(*[one.double() for one in made])
        found = to_torch(engine.numpy(F.scaled_dot_product_attention(*map(engine.tensor, made)))).double()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(768, 2304), (3072, 768), (64, 1), (8, 5), (40, 50_257), (4096, 3)], ids=str)
def test_products_of_few_rows(
    engine: EngineAdapter, seed: int, sizes: tuple[int, int], rows: int, dtype: Any
) -> None:  # fmt: skip
    from server.engine import functional as F

    torch.manual_seed(seed)
    engine.activate()
    depth, columns = sizes
    x, weight, bias = [torch.randn(*shape).to(dtype) for shape in ((rows, depth + 8), (columns, depth), (columns, 2))]
    x, bias = x[:, 8:], bias[:, 1]
    wide = [one.double() for one in (x, weight, bias)]
    a, w, b = [engine.tensor(one) for one in (x, weight, bias)]
    found = {
        "linear": F.linear(a, w, b), "without bias": F.linear(a, w), "mm": F.mm(a, F.transpose(w, 0, 1)),
        "transposed": F.mm(w, F.transpose(a, 0, 1)), "vector": F.mv(w, F.select(a, 0, 0)),
    }  # fmt: skip
    plain = wide[0] @ wide[1].T
    expected = {
        "linear": plain + wide[2], "without bias": plain, "mm": plain, "transposed": plain.T, "vector": plain[0],
    }  # fmt: skip
    scale = float((wide[0].abs() @ wide[1].abs().T).max())
    for name, value in found.items():
        result = to_torch(engine.numpy(value)).double()
        tolerance = torch.finfo(dtype).eps * max(float(expected[name].abs().max()), 1) + 1e-6 * scale
        torch.testing.assert_close(result, expected[name], rtol=0, atol=tolerance, msg=name)


def test_the_same_product_comes_out_twice(engine: EngineAdapter, rng: np.random.Generator) -> None:
    from server.engine import functional as F

    engine.activate()
    x, weight = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in ((2, 3072), (768, 3072))]
    once, again = [engine.numpy(F.linear(engine.tensor(x), engine.tensor(weight))) for _ in range(2)]
    np.testing.assert_array_equal(once, again)
