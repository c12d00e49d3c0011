"""Our tiled attention on the GPU against float64, in every layout that it claims to take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SIZES = [  # batch, query heads, shared heads, rows, columns, width, depth
    (1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 64, 64, 64, 64), (2, 4, 2, 65, 127, 33, 20), (1, 6, 1, 130, 70, 128, 128),
    (3, 2, 2, 7, 300, 72, 100), (1, 2, 2, 257, 257, 31, 31), (2, 6, 2, 100, 190, 32, 24),
]  # fmt: skip
FORMS = [
    (torch.float32, "mixed"), (torch.float32, "projected"), (torch.float32, "misaligned"), (torch.float16, "mixed"),
    (torch.bfloat16, "projected"),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.mark.parametrize(("dtype", "layout"), FORMS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_and_its_gradients(
    engine: EngineAdapter, seed: int, sizes: Any, is_causal: bool, dtype: Any, layout: str
) -> None:
    torch.manual_seed(seed)
    batch, heads, shared, rows, columns, width, depth = sizes
    shapes = (batch, heads, rows, width), (batch, shared, columns, width), (batch, shared, columns, depth)
    made = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    grad = torch.randn(batch, heads, rows, depth, dtype=torch.float64).to(dtype)
    wide = [tensor.double().requires_grad_() for tensor in made]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=is_causal, enable_gqa=heads != shared)
    expected.backward(grad.double())
    results = _run(engine, _LAYOUTS[layout](made), grad, is_causal)
    for mine, reference in zip(results, [expected, *[w.grad for w in wide]], strict=True):
        result, reference = to_torch(mine).double(), reference.detach()
        scale = max(1.0, float(reference.abs().max()))
        torch.testing.assert_close(result, reference, rtol=0, atol=TOLERANCES[dtype] * scale)


def _run(engine: EngineAdapter, made: list[torch.Tensor], grad: torch.Tensor, is_causal: bool) -> list[np.ndarray]:
    """The result, and the gradients of query, key and value."""
    from server.engine import functional as F
    from server.engine.backward import backward

    engine.activate()
    values = [engine.tensor(tensor, True) for tensor in made]
    is_shared = made[0].shape[1] != made[1].shape[1]
    found = F.scaled_dot_product_attention(*values, is_causal=is_causal, enable_gqa=is_shared)
    backward([found], [engine.tensor(grad, False)])
    return [engine.numpy(value) for value in (found, *[value.autograd.grad for value in values])]


def _mixed(made: list[torch.Tensor]) -> list[torch.Tensor]:
    """Row-major, heads between rows, and elements apart."""
    query, key, value = made
    return [query, key.transpose(1, 2).contiguous().transpose(1, 2), torch.stack((value, value), -1)[..., 0]]


def _projected(made: list[torch.Tensor], start: int = 4) -> list[torch.Tensor]:
    """Parts of longer rows, heads side by side, as a projection of query, key and value at once leaves them."""
    results = []
    for tensor in made:
        batch, heads, rows, width = tensor.shape
        whole = torch.zeros(batch, rows, heads * width + 8, dtype=tensor.dtype)
        part = whole[..., start : start + heads * width].view(batch, rows, heads, width).transpose(1, 2)
        results.append(part.copy_(tensor))
    return results


_LAYOUTS = {"mixed": _mixed, "projected": _projected, "misaligned": lambda made: _projected(made, 1)}


def _some(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """The tensor with a few elements of one head replaced."""
    changed = tensor.clone()
    changed[0, 0, [1, tensor.shape[2] - 1], [0, tensor.shape[3] - 1]] = value
    return changed


@pytest.mark.parametrize(("dtype", "layout"), [FORMS[0], FORMS[2], (torch.float16, "misaligned")], ids=str)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("sizes", [(1, 2, 1, 70, 150, 40, 24), (1, 2, 2, 33, 20, 128, 128)], ids=str)
def test_infinities_stay_what_they_are(
    engine: EngineAdapter, seed: int, sizes: Any, which: int, value: float, dtype: Any, layout: str
) -> None:
    torch.manual_seed(seed)
    batch, heads, shared, rows, columns, width, depth = sizes
    shapes = (batch, heads, rows, width), (batch, shared, columns, width), (batch, shared, columns, depth)
    made = [torch.randn(shape).to(dtype) for shape in shapes]
    grad = torch.randn(batch, heads, rows, depth).to(dtype)
    made[which] = _some(made[which], value)
    wide = [tensor.double().requires_grad_() for tensor in made]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, enable_gqa=heads != shared)
    expected.backward(grad.double())
    found = _run(engine, _LAYOUTS[layout](made), grad, False)
    for mine, reference in zip(found, [expected.detach(), *[w.grad for w in wide]], strict=True):
        result = to_torch(mine).double()
        scale = max(1.0, float(reference[reference.isfinite()].abs().max())) if reference.isfinite().any() else 1.0
        torch.testing.assert_close(result, reference, rtol=0, atol=TOLERANCES[dtype] * scale, equal_nan=True)


def test_rows_whose_scores_are_all_minus_infinity_are_zero(engine: EngineAdapter, seed: int) -> None:
    torch.manual_seed(seed)
    query, key, value, grad = [torch.rand(1, 2, 70, 24) + 0.1 for _ in range(4)]
    key[0, 1] = -torch.inf
    out, by_query, by_key, by_value = [to_torch(each) for each in _run(engine, [query, key, value], grad, False)]
    assert (out[0, 1] == 0).all()
    assert by_query[0, 1].isnan().all()
    assert (by_key[0, 1] == 0).all()
    assert (by_value[0, 1] == 0).all()
    assert all(each[0, 0].isfinite().all() and (each[0, 0] != 0).any() for each in (out, by_query, by_key, by_value))


@pytest.mark.parametrize("width", [32, 64, 96, 128])
def test_the_layout_changes_no_result(engine: EngineAdapter, seed: int, width: int) -> None:
    torch.manual_seed(seed)
    made, grad = [torch.randn(2, 2, 150, width) for _ in range(3)], torch.randn(2, 2, 150, width)
    first, *others = [_run(engine, layout(made), grad, True) for layout in _LAYOUTS.values()]
    for other in others:
        for one, another in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("width", [32, 128])
def test_long_sums_keep_their_digits(engine: EngineAdapter, seed: int, width: int) -> None:
    torch.manual_seed(seed)
    made = [torch.rand(1, 1, 4000, width) for _ in range(3)]
    grad = torch.rand(1, 1, 4000, width)
    wide = [tensor.double().requires_grad_() for tensor in made]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide)
    expected.backward(grad.double())
    found = _run(engine, made, grad, False)
    for mine, reference in ((found[0], expected.detach()), (found[3], wide[2].grad)):
        torch.testing.assert_close(to_torch(mine).double(), reference, rtol=2e-6, atol=0)


def test_the_same_gradients_come_out_twice(engine: EngineAdapter, rng: np.random.Generator) -> None:
    from server.engine import functional as F
    from server.engine.backward import backward

    engine.activate()
    made = [torch.from_numpy(rng.standard_normal((2, 3, 200, 40)).astype(np.float32)) for _ in range(3)]
    runs = []
    for _ in range(2):
        values = [engine.tensor(tensor, True) for tensor in made]
        found = F.scaled_dot_product_attention(*values, is_causal=True)
        backward([F.sum(F.mul(found, found))], [None])
        runs.append([engine.numpy(value.autograd.grad) for value in values])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, other)
