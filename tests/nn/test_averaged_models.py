"""Averages of a model's weights, and of its batch statistics, as PyTorch's `swa_utils` makes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .pairs import assert_close, give_state

AVERAGES: dict[str, Any] = {
    "mean": lambda u: {}, "ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema one by one": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8), "use_buffers": True},
    "mean one by one": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "buffers": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.5), "use_buffers": True},
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models(tg: Any, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    theirs, ours = (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)) for nn in (torch.nn, tg.nn))
    give_state(tg, theirs, ours)
    reference = torch.optim.swa_utils.AveragedModel(theirs, **AVERAGES[name](torch.optim.swa_utils))
    mine = tg.optim.swa_utils.AveragedModel(ours, **AVERAGES[name](tg.optim.swa_utils))
    for _ in range(3):
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.add_(torch.randn_like(parameter))
        theirs(torch.randn(5, 4))
        give_state(tg, theirs, ours)
        reference.update_parameters(theirs)
        mine.update_parameters(ours)
    for key, value in reference.state_dict().items():
        assert_close(mine.state_dict()[key], value, key)
    batches = [torch.randn(6, 4) for _ in range(3)]
    torch.optim.swa_utils.update_bn([(batch, 0) for batch in batches], reference)
    tg.optim.swa_utils.update_bn([(tg.tensor(batch.numpy()), 0) for batch in batches], mine)
    for key, value in reference.state_dict().items():
        assert_close(mine.state_dict()[key], value, key)
