"""Attention within sequences that lie one after the other is attention of each sequence by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from telegrad.errors import NotSupportedError, ShapeError
from telegrad.nn.attention.varlen import AuxRequest, varlen_attn

QUERIES, KEYS = (3, 1, 4), (5, 2, 4)


def _ends(lengths: tuple[int, ...]) -> list[int]:
    return [sum(lengths[:count]) for count in range(len(lengths) + 1)]


def _expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: tuple[int, int], keys: tuple[int, ...]) -> Any:
    """Compute it in PyTorch, one sequence and one score after the other."""
    results, sums = [], []
    for a, b, c in zip(q.split(QUERIES), k.split(keys), v.split(keys), strict=True):
        b, c = (part.repeat_interleave(a.size(1) // part.size(1), 1) for part in (b, c))
        scores = torch.einsum("ihd,jhd->hij", a, b) / a.size(-1) ** 0.5
        offset = torch.arange(len(b))[None] - torch.arange(len(a))[:, None] - (len(b) - len(a))
        seen = (offset >= -window[0] if window[0] >= 0 else offset == offset) & (
            offset <= window[1] if window[1] >= 0 else offset == offset
        )
        scores = scores.masked_fill(~seen, -torch.inf)
        results.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), c))
        sums.append(scores.logsumexp(-1))
    return torch.cat(results), torch.cat(sums, 1)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (2, 1), (1, -1)])
@pytest.mark.parametrize("has_own_keys", [True, False])
@pytest.mark.parametrize("kept", [4, 2])
def test_each_sequence_attends_to_itself(window: tuple[int, int], has_own_keys: bool, kept: int, tg: Any) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed = {seed}")
    generator = torch.Generator().manual_seed(seed)
    keys = KEYS if has_own_keys else QUERIES
    sizes = (sum(QUERIES), 4), (sum(keys), kept), (sum(keys), kept)
    theirs = [torch.randn(*size, 8, dtype=torch.float64, generator=generator).requires_grad_() for size in sizes]
    ours = [tg.tensor(x.tolist(), dtype=tg.float64, requires_grad=True) for x in theirs]
    ends = [tg.tensor(_ends(lengths), dtype=tg.int32) for lengths in (QUERIES, keys)]
    result, sums = varlen_attn(
        *ours, ends[0], ends[1] if has_own_keys else None, 4, 5, window_size=window, enable_gqa=kept < 4,
        return_aux=AuxRequest(lse=True),
    )  # fmt: skip
    expected, logarithms = _expected(*theirs, window, keys)
    result.square().sum().backward()
    expected.square().sum().backward()
    for mine, other in ((result, expected), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))):
        torch.testing.assert_close(torch.tensor(mine.tolist(), dtype=torch.float64), other.detach())
    torch.testing.assert_close(torch.tensor(sums.tolist()), logarithms.detach().float())


def test_ends_that_do_not_fit_and_pages_are_refused(tg: Any) -> None:
    x, ends = tg.ones(4, 2, 8), tg.tensor([0, 1, 4])
    with pytest.raises(ShapeError, match="are not those of"):
        varlen_attn(x, x, x, tg.tensor([0, 1, 3]), ends, 3, 3)
    with pytest.raises(NotSupportedError, match="join the keys"):
        varlen_attn(x, x, x, ends, ends, 3, 3, block_table=ends)
