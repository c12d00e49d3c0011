"""Fused optimizer steps against PyTorch's own, and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DTypeError, InplaceError, ShapeError
from tests.gpus import ALL_DEVICES

from .adapters import EngineAdapter
from .harness import assert_close, to_torch

SHAPES = [(7, 5), (3,), (), (0, 4), (40000,), (130, 300)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(params=ALL_DEVICES)
def adapter(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _lists(count: int, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    """``count`` lists of tensors; the last tensor of each is column-major."""
    lists = [[torch.randn(shape).to(dtype) for shape in SHAPES] for _ in range(count)]
    for tensors in lists:
        tensors.append(torch.randn(6, 4).to(dtype).t())
    return lists


def _compare(adapter: EngineAdapter, ours: list[Any], theirs: list[torch.Tensor], what: str) -> None:
    for mine, reference in zip(ours, theirs, strict=True):
        found = to_torch(adapter.numpy(mine))
        assert_close(found, reference.to(found.dtype), what)


def _run_both(adapter: EngineAdapter, name: str, lists: list[list[torch.Tensor]], **options: Any) -> list[list[Any]]:
    """Our step on copies; PyTorch's on ``lists``, in float32 for halves: its own CPU kernel for them is wrong."""
    mine = [[adapter.tensor(t) for t in tensors] for tensors in lists]
    for tensors in lists:
        tensors[:] = [t.float() if t.dtype.itemsize == 2 else t for t in tensors]
    extra = {k: adapter.tensor(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    getattr(adapter.functional, name)(*mine, **extra)
    getattr(torch, name)(*lists, **options)
    return mine


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(
    ("momentum", "dampening", "decay"), [(0.0, 0.0, 0.0), (0.0, 0.0, 0.1), (0.9, 0.0, 0.0), (0.9, 0.3, 0.1)]
)
def test_sgd_step_agrees_with_pytorch(
    adapter: EngineAdapter, dtype: torch.dtype, momentum: float, dampening: float, decay: float, nesterov: bool
) -> None:
    torch.manual_seed(1)
    for maximize, first, scaled in itertools.product([False, True], [False, True], [False, True]):
        lists = _lists(3, dtype)
        options = {
            "weight_decay": decay, "momentum": momentum, "lr": 0.1, "dampening": dampening,
            "nesterov": nesterov and momentum > 0,
            "maximize": maximize, "is_first_step": first, "grad_scale": torch.tensor(4.0) if scaled else None,
        }  # fmt: skip
        if not momentum:
            lists[2] = []
        mine = _run_both(adapter, "_fused_sgd_", lists, **options)
        for ours, theirs, what in zip(mine, lists, ("parameter", "gradient", "buffer"), strict=True):
            _compare(adapter, ours, theirs, f"{what} with {options}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_step_agrees_with_pytorch(adapter: EngineAdapter, dtype: torch.dtype, name: str, amsgrad: bool) -> None:
    torch.manual_seed(2)
    for maximize, decay, scaled in itertools.product([False, True], [0.0, 0.1], [False, True]):
        lists = _lists(5, dtype)
        for moments in lists[3:]:
            moments[:] = [m.abs() for m in moments]
        if not amsgrad:
            lists[4] = []
        steps = [torch.tensor(float(3 + i % 2)) for i in range(len(lists[0]))]
        options = {
            "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "weight_decay": decay, "eps": 1e-6, "amsgrad": amsgrad,
            "maximize": maximize, "grad_scale": torch.tensor(2.0) if scaled else None,
        }  # fmt: skip
        mine = _run_both(adapter, name, [*lists, steps], **options)
        for ours, theirs in zip(mine, [*lists, steps], strict=True):
            _compare(adapter, ours, theirs, f"{name} with {options}")


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_found_inf_decides_whether_anything_changes(adapter: EngineAdapter, found: float) -> None:
    torch.manual_seed(3)
    lists = [*_lists(4, torch.float32), []]
    lists[3] = [t.abs() for t in lists[3]]
    steps = [torch.tensor(1.0) for _ in lists[0]]
    options = {
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.1,
        "eps": 1e-6,
        "amsgrad": False,
        "maximize": False,
    }
    mine = _run_both(adapter, "_fused_adamw_", [*lists, steps], **options, found_inf=torch.tensor(found))
    for ours, theirs in zip(mine, [*lists, steps], strict=True):
        _compare(adapter, ours, theirs, "list")


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_advance_counts_steps_up_unless_infinities_were_found(adapter: EngineAdapter, found: float) -> None:
    value = adapter.tensor
    ones = [torch.ones(3)] * 4
    step = value(torch.tensor(4.0))
    lists = [[value(t)] for t in ones]
    adapter.functional._fused_adam_(
        *lists, [], [step], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        found_inf=value(torch.tensor(found)), advance=True,
    )  # fmt: skip
    assert float(adapter.numpy(step)) == 5.0 - found


def test_steps_bump_versions_and_read_tensor_rates(adapter: EngineAdapter) -> None:
    param, grad = adapter.tensor(torch.ones(3)), adapter.tensor(torch.full((3,), 2.0))
    adapter.functional._fused_sgd_(
        [param], [grad], [], weight_decay=0.0, momentum=0.0, lr=adapter.tensor(torch.tensor(0.5)), dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    assert adapter.numpy(param).tolist() == [0.0, 0.0, 0.0]
    assert param.storage.version == 1


def _sgd(adapter: EngineAdapter, params: list[torch.Tensor], grads: list[torch.Tensor], **options: Any) -> None:
    settings = {
        "weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False, "maximize": False,
        "is_first_step": True, **options,
    }  # fmt: skip
    adapter.functional._fused_sgd_([*map(adapter.tensor, params)], [*map(adapter.tensor, grads)], [], **settings)


def test_lists_that_do_not_go_together_are_refused(adapter: EngineAdapter) -> None:
    one, two = torch.ones(3), torch.ones(2)
    with pytest.raises(ArgumentError, match=r"_fused_sgd_: 1 parameters but 2 in grads"):
        _sgd(adapter, [one], [one, one])
    with pytest.raises(ShapeError, match=r"parameter float32\[3\] and its entry float32\[2\] in grads differ in shape"):
        _sgd(adapter, [one], [two])
    with pytest.raises(DTypeError, match=r"differ in type"):
        _sgd(adapter, [one], [one.double()])
    with pytest.raises(DTypeError, match=r"must be floating-point, got int64\[3\]"):
        _sgd(adapter, [one.long()], [one.long()])
    with pytest.raises(ArgumentError, match=r"1 parameters but 0 in momentum_buffers"):
        _sgd(adapter, [one], [one], momentum=0.9)
    with pytest.raises(InplaceError, match=r"_fused_sgd_: .*several elements of the written float32\[3\] share memory"):
        _sgd(adapter, [torch.ones(1).expand(3)], [one])


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, float("inf"), 0.0])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_total_norm_is_that_of_all_elements(adapter: EngineAdapter, dtype: torch.dtype, norm_type: float) -> None:
    torch.manual_seed(4)
    tensors = [torch.randn(5, 3).to(dtype), torch.randn(4).to(dtype), torch.randn(6, 2).to(dtype).t()]
    found = adapter.functional._total_norm([*map(adapter.tensor, tensors)], norm_type)
    expected = torch.nn.utils.get_total_norm([t.double() for t in tensors], norm_type).to(dtype)
    assert_close(to_torch(adapter.numpy(found)), expected, "norm")


@pytest.mark.parametrize("norm_type", [2.0, 0.0, float("-inf")])
def test_total_norm_of_several_types_has_their_common_type(adapter: EngineAdapter, norm_type: float) -> None:
    half, single = torch.tensor([float("inf"), 1.0]).half(), torch.tensor([3.0, 4.0])
    for tensors in ([half], [half, single], [single.half(), single.bfloat16()], [single.bfloat16(), single.double()]):
        found = adapter.functional._total_norm([*map(adapter.tensor, tensors)], norm_type)
        assert_close(to_torch(adapter.numpy(found)), torch.nn.utils.get_total_norm(tensors, norm_type), "norm")


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clip_to_norm_scales_down_only(adapter: EngineAdapter, dtype: torch.dtype, max_norm: float) -> None:
    torch.manual_seed(5)
    tensors = [torch.randn(5, 3).to(dtype), torch.randn(4).to(dtype)]
    mine = [*map(adapter.tensor, tensors)]
    norm = adapter.functional._total_norm(mine, 2.0)
    adapter.functional._clip_to_norm_(mine, norm, max_norm)
    params = [torch.zeros_like(t) for t in tensors]
    for param, tensor in zip(params, tensors, strict=True):
        param.grad = tensor.clone()
    torch.nn.utils.clip_grad_norm_(params, max_norm)
    _compare(adapter, mine, [p.grad for p in params], "clipped")


def test_zeroing_and_clamping_reach_every_tensor(adapter: EngineAdapter) -> None:
    tensors = [torch.tensor([-3.0, 0.5, 3.0]), torch.tensor([9.0, float("nan")]).half()]
    mine = [*map(adapter.tensor, tensors)]
    adapter.functional._foreach_clamp_(mine, -1.0, 1.0)
    _compare(adapter, mine, [t.clamp(-1, 1) for t in tensors], "clamped")
    adapter.functional._foreach_zero_(mine)
    _compare(adapter, mine, [torch.zeros_like(t) for t in tensors], "zeroed")
