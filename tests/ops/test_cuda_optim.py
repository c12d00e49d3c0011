"""Fused optimizer steps and gradient scaling on a GPU against float64 references, whatever the lists hold."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from .adapters import EngineAdapter
from .harness import to_torch

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("active")]

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 3e-6, torch.float64: 1e-13, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES = [(1,), (3,), (0, 4), (), (8,), (4095,), (4097,), (130, 301), (1, 1, 5), (100_003,)]


def _layouts(dtype: torch.dtype) -> list[torch.Tensor]:
    """Tensors of many sizes, transposed, misaligned, with gaps."""
    plain = [torch.randn(shape).to(dtype) for shape in SHAPES]
    return [
        *plain, torch.randn(40, 30).to(dtype).t(), torch.randn(1001).to(dtype)[1:],
        torch.randn(30, 40).to(dtype)[:, 3:9], torch.randn(2, 3, 4, 5).to(dtype).to(memory_format=torch.channels_last),
    ]  # fmt: skip


def _lists(count: int, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    lists = [_layouts(dtype) for _ in range(count)]
    lists[1][-4] = lists[1][-4].contiguous()  # a gradient in another order than its parameter
    return lists


def _check(gpu: EngineAdapter, found: list[Any], expected: list[torch.Tensor], what: str) -> None:
    for number, (mine, reference) in enumerate(zip(found, expected, strict=True)):
        array = to_torch(gpu.numpy(mine))
        tolerance = TOLERANCES.get(array.dtype, 0)
        torch.testing.assert_close(
            array.double(), reference.double(), rtol=tolerance, atol=tolerance, equal_nan=True,
            msg=lambda m, n=number: f"{what}, tensor {n}: {m}",
        )  # fmt: skip


def _run(gpu: EngineAdapter, name: str, lists: list[list[torch.Tensor]], **options: Any) -> None:
    """Our step, and PyTorch's own in float64."""
    mine = [[gpu.tensor(t) for t in one] for one in lists]
    extra = {k: gpu.tensor(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    getattr(gpu.functional, name)(*mine, **extra)
    wide = [[t.double().contiguous() for t in one] for one in lists]
    if name != "_fused_sgd_":
        wide[-1] = [t.clone() for t in lists[-1]]
    getattr(torch, name)(*wide, **options)
    for number, (ours, reference) in enumerate(zip(mine, wide, strict=True)):
        _check(gpu, ours, reference, f"{name} list {number} {options}")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd(gpu: EngineAdapter, dtype: torch.dtype, momentum: float) -> None:
    torch.manual_seed(1)
    for nesterov, maximize, first, decay, scaled in itertools.product(*[[False, True]] * 3, [0.0, 0.1], [False, True]):
        lists = _lists(3, dtype)
        if not momentum:
            lists[2] = []
        _run(
            gpu, "_fused_sgd_", lists, weight_decay=decay, momentum=momentum, lr=0.1,
            dampening=0.0 if nesterov else 0.3, nesterov=nesterov and momentum > 0, maximize=maximize,
            is_first_step=first, grad_scale=torch.tensor(4.0) if scaled else None,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(gpu: EngineAdapter, dtype: torch.dtype, name: str, amsgrad: bool) -> None:
    torch.manual_seed(2)
    for maximize, decay, scaled in itertools.product([False, True], [0.0, 0.1], [False, True]):
        lists = _lists(5, dtype)
        for one in lists[3:]:
            one[:] = [t.abs() for t in one]
        if not amsgrad:
            lists[4] = []
        lists.append([torch.tensor(float(3 + i % 2)) for i in range(len(lists[0]))])
        _run(
            gpu, name, lists, lr=0.01, beta1=0.9, beta2=0.99, weight_decay=decay, eps=1e-6, amsgrad=amsgrad,
            maximize=maximize, grad_scale=torch.tensor(2.0) if scaled else None,
        )  # fmt: skip


_ADAM = {
    "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": False, "maximize": False,
}  # fmt: skip


def test_more_tensors_than_one_launch_takes(gpu: EngineAdapter) -> None:
    torch.manual_seed(3)
    sizes = [1 + i % 37 for i in range(1300)]
    lists = [[torch.randn(size).abs() for size in sizes] for _ in range(4)]
    _run(gpu, "_fused_adamw_", [*lists, [], [torch.tensor(float(i % 50)) + 1 for i in range(1300)]], lr=0.1, **_ADAM)
    _run(gpu, "_fused_sgd_", [*[[torch.randn(s) for s in sizes] for _ in range(2)], []], lr=0.1, weight_decay=0.0,
         momentum=0.0, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)  # fmt: skip


def test_types_may_be_mixed(gpu: EngineAdapter) -> None:
    torch.manual_seed(4)
    lists = [[torch.randn(77).abs().to(TYPES[i % 4]) for i in range(9)] for _ in range(4)]
    _run(gpu, "_fused_adamw_", [*lists, [], [torch.tensor(2.0 + i) for i in range(9)]], lr=0.1, **_ADAM)


@pytest.mark.parametrize("rate", [torch.float32, torch.float64], ids=str)
def test_rates_may_be_tensors(gpu: EngineAdapter, rate: torch.dtype) -> None:
    torch.manual_seed(5)
    tensors = [torch.randn(100), torch.randn(100), torch.randn(100), torch.rand(100)]
    lists = [[gpu.tensor(t)] for t in tensors]
    lr = torch.tensor(0.125, dtype=rate)
    gpu.functional._fused_adamw_(*lists, [], [gpu.tensor(torch.tensor(3.0))], lr=gpu.tensor(lr), **_ADAM)
    wide = [[t.double()] for t in tensors]
    torch._fused_adamw_(*wide, [], [torch.tensor(3.0)], lr=0.125, **_ADAM)
    _check(gpu, [one[0] for one in lists], [one[0] for one in wide], "adamw")


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_found_infinities_leave_everything_as_it_was(gpu: EngineAdapter, found: float) -> None:
    torch.manual_seed(6)
    originals = [torch.rand(50) for _ in range(4)]
    lists = [[gpu.tensor(t)] for t in originals]
    step = gpu.tensor(torch.tensor(4.0))
    gpu.functional._fused_adam_(
        *lists, [], [step], lr=0.1, **_ADAM, grad_scale=gpu.tensor(torch.tensor(2.0)),
        found_inf=gpu.tensor(torch.tensor(found)), advance=True,
    )  # fmt: skip
    assert float(gpu.numpy(step)) == 5.0 - found
    unchanged = [torch.equal(to_torch(gpu.numpy(one[0])), t) for one, t in zip(lists, originals, strict=True)]
    assert unchanged == [bool(found)] * 4


def test_a_step_count_shared_by_parameters_is_counted_once(gpu: EngineAdapter) -> None:
    shapes = [(5,), (0,), (7,)]
    lists = [[gpu.tensor(torch.rand(s)) for s in shapes] for _ in range(4)]
    step = gpu.tensor(torch.tensor(1.0))
    other = gpu.tensor(torch.tensor(7.0))
    gpu.functional._fused_adam_(*lists, [], [step, other, step], lr=0.1, **_ADAM, advance=True)
    assert (float(gpu.numpy(step)), float(gpu.numpy(other))) == (2.0, 8.0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_few_tensors_step_and_count_several_times(gpu: EngineAdapter, amsgrad: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(10)
    shapes = [(256, 70), (3,), (4099,), (), (40_000,)]
    lists = [[torch.rand(shape).to(dtype) for shape in shapes] for _ in range(5 if amsgrad else 4)]
    mine, wide = [[gpu.tensor(t) for t in one] for one in lists], [[t.double() for t in one] for one in lists]
    steps = [torch.tensor(float(i)) for i in range(len(shapes))]
    counted = [gpu.tensor(t) for t in steps]
    options = {**_ADAM, "amsgrad": amsgrad}
    for _ in range(2):
        if not amsgrad:
            mine[4:], wide[4:] = [[]], [[]]
        gpu.functional._fused_adamw_(*mine, counted, lr=0.01, **options, advance=True)
        steps = [step + 1 for step in steps]
        torch._fused_adamw_(*wide, steps, lr=0.01, **options)
    for ours, reference in zip(mine, wide, strict=True):
        _check(gpu, ours, reference, f"adamw {options}")
    assert [float(gpu.numpy(step)) for step in counted] == [2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, 0.5, math.inf])
def test_total_norm(gpu: EngineAdapter, order: float) -> None:
    torch.manual_seed(7)
    for dtype in TYPES:
        tensors = _layouts(dtype)
        found = gpu.functional._total_norm([gpu.tensor(t) for t in tensors], order)
        everything = torch.cat([t.reshape(-1).double() for t in tensors])
        _check(gpu, [found], [torch.linalg.vector_norm(everything, order).to(dtype)], f"norm {order}")
    mixed = [gpu.tensor(torch.ones(3).to(dtype)) for dtype in TYPES]
    _check(gpu, [gpu.functional._total_norm(mixed, 2.0)], [torch.tensor(12.0).sqrt()], "mixed types")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_norms_of_what_is_not_finite(gpu: EngineAdapter, value: float) -> None:
    tensors = [torch.ones(5000), torch.ones(10)]
    tensors[0][4321] = value
    for order in (1.0, 2.0, 3.0, math.inf):
        found = gpu.functional._total_norm([gpu.tensor(t) for t in tensors], order)
        _check(gpu, [found], [torch.tensor(abs(value))], f"norm {order}")


def test_norms_do_not_lose_small_gradients_beside_large_ones(gpu: EngineAdapter) -> None:
    tensor = torch.full((20_000_000,), 1e-3)
    found = gpu.functional._total_norm([gpu.tensor(tensor)], 2.0)
    _check(gpu, [found], [tensor.double().square().sum().sqrt()], "norm of many")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_clipping(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(8)
    for most in (0.5, 1e6):
        tensors = _layouts(dtype)
        mine = [gpu.tensor(t) for t in tensors]
        norm = gpu.functional._total_norm(mine, 2.0)
        gpu.functional._clip_to_norm_(mine, norm, most)
        total = torch.cat([t.reshape(-1).double() for t in tensors]).norm()
        factor = min(most / (total.item() + 1e-6), 1.0)
        _check(gpu, mine, [t.double() * factor for t in tensors], "clipped")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, -math.inf])
def test_unscaling_and_looking_for_infinities(gpu: EngineAdapter, dtype: torch.dtype, value: float) -> None:
    torch.manual_seed(9)
    tensors = _layouts(dtype)
    tensors[5][4000] = value
    for scale in (0.125, None):
        mine, found = [gpu.tensor(t) for t in tensors], gpu.tensor(torch.zeros(1))
        factor = None if scale is None else gpu.tensor(torch.tensor([scale]))
        gpu.functional._amp_foreach_non_finite_check_and_unscale_(mine, found, factor)
        assert float(gpu.numpy(found)[0]) == float(not math.isfinite(value))
        _check(gpu, mine, [t.double() * (scale or 1) for t in tensors], "unscaled")


def test_the_scale_grows_and_shrinks_as_pytorchs(gpu: EngineAdapter) -> None:
    found = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    scale, tracker = torch.tensor([8.0]), torch.tensor([0], dtype=torch.int32)
    ours, our_tracker = gpu.tensor(scale), gpu.tensor(tracker)
    for each in found:
        flag = torch.tensor([each])
        torch._amp_update_scale_(scale, tracker, flag, 2.0, 0.5, 2)
        gpu.functional._amp_update_scale_(ours, our_tracker, gpu.tensor(flag), 2.0, 0.5, 2)
        assert (float(gpu.numpy(ours)[0]), int(gpu.numpy(our_tracker)[0])) == (scale.item(), tracker.item())
