"""Attention's own kernel for Hopper against float64, for sizes that do and do not fill its tiles; what it leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from telegrad_protocol.meta import Meta
from tests.ops.adapters import TORCH_TO_OURS, EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float16: 5e-4, torch.bfloat16: 4e-3}
"""How far a result may be from float64's, as a share of its length: weights and results are rounded to halves."""
SCALE = 0.15


@pytest.fixture(scope="module")
def adapter(cuda_device: str) -> EngineAdapter:
    found = EngineAdapter(cuda_device)
    from server.engine.cuda.runtime.launch import architecture

    if architecture(0) != "sm_90":
        pytest.skip("needs a Hopper GPU")
    return found


@pytest.fixture(autouse=True)
def hopper(adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module under test, which takes whatever it can."""
    from server.engine.cuda.attention import hopper as hopper_attention

    torch.manual_seed(seed)
    adapter.activate()
    monkeypatch.setattr(hopper_attention, "_LEAST_ROWS", 1)
    monkeypatch.setattr(hopper_attention, "LEAST_BALANCE", 0)
    return hopper_attention


def _operands(sizes: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key and value, heads side by side in memory."""
    batch, heads, shared, rows, columns, width = sizes
    shapes = [(batch, rows, heads, width), *[(batch, columns, shared, width)] * 2]
    return [torch.randn(shape).to(dtype).transpose(1, 2) for shape in shapes]


def _prepared(adapter: EngineAdapter, tensors: list[torch.Tensor], is_causal: bool = True, scale: float = SCALE) -> Any:
    """The launch and its balance; None where the kernel does not take the operands."""
    from server.engine.cuda.attention import hopper as hopper_attention
    from server.engine.operators import OPERATORS, Request

    op, backend = OPERATORS["_attention"].op, adapter.backends[adapter.device]
    metas = [Meta.of(tuple(t.shape), TORCH_TO_OURS[t.dtype], adapter.device, tuple(t.stride())) for t in tensors]
    args = (*metas, None, is_causal, scale, True)
    return hopper_attention.forward(Request(op, backend, args, op.infer(args), None))


def _takes(adapter: EngineAdapter, tensors: list[torch.Tensor], is_causal: bool = True, scale: float = SCALE) -> bool:
    return _prepared(adapter, tensors, is_causal, scale) is not None


def _attend(adapter: EngineAdapter, tensors: list[torch.Tensor], is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The results of the step itself, which the kernel takes: output and logarithms."""
    from server.engine.dispatcher import dispatch
    from server.engine.operators import OPERATORS

    assert _takes(adapter, tensors, is_causal)
    values = [adapter.tensor(t) for t in tensors]
    found = dispatch(OPERATORS["_attention"], (*values, None, is_causal, SCALE, True))
    output, logarithms = [to_torch(adapter.numpy(each)) for each in found]
    return output, logarithms


def _reference(tensors: list[torch.Tensor], is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    query, key, value = [t.double() for t in tensors]
    key, value = [t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value)]
    scores = query @ key.mT * SCALE
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not(), -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def _check(adapter: EngineAdapter, tensors: list[torch.Tensor], is_causal: bool) -> None:
    (output, logarithms), (expected, sums) = _attend(adapter, tensors, is_causal), _reference(tensors, is_causal)
    error = ((output.double() - expected).norm() / expected.norm()).item()
    assert error <= TOLERANCES[output.dtype], f"the result differs by {error:.3g} of its length"
    torch.testing.assert_close(logarithms.double(), sums, rtol=1e-5, atol=1e-4)


CASES = [
    (2, 3, 3, 512, 512, 64), (1, 4, 2, 1000, 1000, 128), (2, 2, 1, 77, 300, 64), (1, 2, 2, 300, 77, 128),
    (3, 2, 2, 1, 1, 64), (1, 5, 5, 129, 640, 128), (2, 70, 70, 200, 200, 64), (1, 3, 1, 193, 129, 64),
    (1, 2, 2, 64, 2049, 128), (9, 16, 4, 383, 383, 128),
]  # fmt: skip


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_results_and_logarithms(
    adapter: EngineAdapter, sizes: tuple[int, ...], dtype: torch.dtype, is_causal: bool
) -> None:
    tensors = _operands(sizes, dtype)
    _check(adapter, tensors, is_causal)
    _check(adapter, [t.contiguous() for t in tensors], is_causal)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("width", [64, 128])
def test_large_scores_and_rows_of_one_weight(adapter: EngineAdapter, width: int, dtype: torch.dtype) -> None:
    query, key, value = _operands((1, 2, 2, 700, 700, width), dtype)
    _check(adapter, [query * 20, key, value], True)


@pytest.mark.parametrize("offset", [0, 8, 72])
def test_parts_of_one_projection(adapter: EngineAdapter, offset: int) -> None:
    packed = torch.randn(3, 260, 3 * 256 + 80).bfloat16()
    parts = [packed[..., offset + 256 * i : offset + 256 * (i + 1)].unflatten(-1, (4, 64)) for i in range(3)]
    _check(adapter, [part.transpose(1, 2) for part in parts], True)


def test_gradients(adapter: EngineAdapter) -> None:
    tensors = _operands((2, 4, 2, 270, 270, 64), torch.bfloat16)
    grad = torch.randn(2, 270, 4, 64).bfloat16().transpose(1, 2)
    values = [adapter.tensor(t, True) for t in tensors]
    options: dict[str, Any] = {"is_causal": True, "enable_gqa": True, "scale": SCALE}
    assert _takes(adapter, tensors)
    out = adapter.functional.scaled_dot_product_attention(*values, **options)
    found = adapter.grad([out], [adapter.tensor(grad)], values, False)
    doubles = [t.double().requires_grad_() for t in tensors]
    expected = torch.autograd.grad(_reference(doubles, True)[0], doubles, grad.double())
    for mine, theirs in zip(found, expected, strict=True):
        difference = to_torch(adapter.numpy(mine)).double() - theirs
        assert difference.norm() <= 1e-2 * theirs.norm()


def test_more_tiles_than_a_launch_takes(hopper: Any, adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper, "CAPACITIES", (16, 64))
    _check(adapter, _operands((3, 16, 8, 500, 500, 64), torch.float16), True)  # three tiles each of 48 heads


@pytest.mark.parametrize("width", [64, 128])
def test_what_is_not_a_number_reaches_those_who_see_it(adapter: EngineAdapter, width: int) -> None:
    query, key, value = _operands((1, 2, 2, 450, 450, width), torch.float16)
    _, clean = _reference([query, key, value], True)
    key[0, 1, 200] = torch.nan
    output, logarithms = _attend(adapter, [query, key, value], True)
    assert not output[0, 0].isnan().any()
    assert not output[0, 1, :200].isnan().any()
    assert output[0, 1, 200:].isnan().all()
    assert logarithms[0, 1, 200:].isnan().all()
    torch.testing.assert_close(logarithms[0, 1, :200].double(), clean[0, 1, :200], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("width", [64, 128])
def test_infinities_stay_what_they_are(adapter: EngineAdapter, width: int, which: int, value: float) -> None:
    tensors = _operands((1, 2, 2, 300, 300, width), torch.bfloat16)
    tensors[which][0, 1, [3, 299], [0, width - 1]] = value
    _check_each(adapter, tensors)


def _check_each(adapter: EngineAdapter, tensors: list[torch.Tensor]) -> None:
    """What is not finite is where it should be; the rest is near."""
    output, logarithms = _attend(adapter, tensors, False)
    expected, sums = _reference(tensors, False)
    atol = TOLERANCES[output.dtype] * expected[expected.isfinite()].abs().max().item()
    torch.testing.assert_close(output.double(), expected, rtol=0.01, atol=atol, equal_nan=True)
    seen = expected.isfinite().any(-1)
    torch.testing.assert_close(logarithms[seen].double(), sums[seen], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("width", [64, 128])
def test_rows_whose_scores_are_all_minus_infinity_are_zero(adapter: EngineAdapter, width: int) -> None:
    query, key, value = _operands((1, 2, 2, 300, 300, width), torch.float16)
    query[0, 1] = query[0, 1].abs() + 0.1
    key[0, 1] = -torch.inf
    output, logarithms = _attend(adapter, [query, key, value], False)
    assert (output[0, 1] == 0).all()
    assert (logarithms[0, 1] == torch.inf).all()
    assert output[0, 0].isfinite().all()


def test_results_do_not_vary(adapter: EngineAdapter) -> None:
    tensors = _operands((4, 16, 16, 640, 640, 128), torch.bfloat16)
    first, second = _attend(adapter, tensors, True), _attend(adapter, tensors, True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("width", [32, 64, 96, 128])
@pytest.mark.parametrize("scale", [-1.0, 0.0, 0.5])
def test_what_it_takes(adapter: EngineAdapter, width: int, scale: float) -> None:
    tensors = _operands((1, 2, 2, 40, 40, width), torch.float16)
    assert _takes(adapter, tensors, scale=scale) == (width in (64, 128) and scale > 0)


def test_small_problems_leave_multiprocessors_idle(adapter: EngineAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    from server.engine.cuda.attention.hopper import LEAST_BALANCE

    def balance(*sizes: int) -> float:
        return float(_prepared(adapter, _operands(sizes, torch.bfloat16)).balance)

    assert balance(1, 4, 4, 1024, 1024, 64) < 0.5 < LEAST_BALANCE <= balance(8, 12, 12, 1024, 1024, 64)
