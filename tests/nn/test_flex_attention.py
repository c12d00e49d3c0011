"""Attention whose scores and masks are functions of positions, against PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex
from torch.testing import assert_close


@pytest.fixture(autouse=True)
def functions_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def flex(tg: Any) -> Any:
    return import_module("telegrad.nn.attention.flex_attention")


def _causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def _near(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx - kv_idx < 3 + h


@pytest.mark.parametrize("apart", [True, False])
def test_masks_of_blocks_count_and_list_them(tg: Any, flex: Any, apart: bool) -> None:
    options: dict[str, Any] = {"BLOCK_SIZE": 4, "separate_full_blocks": apart}
    mask = flex.create_block_mask(_causal, 1, 2, 10, 10, **options)
    reference = torch_flex.create_block_mask(_causal, 1, 2, 10, 10, device="cpu", **options)
    for which in ("kv", "q", "full_kv", "full_q"):
        for name in (f"{which}_num_blocks", f"{which}_indices"):
            ours, theirs = getattr(mask, name), getattr(reference, name)
            assert (ours is None) == (theirs is None), name
            assert ours is None or (ours.dtype is tg.int32 and ours.tolist() == theirs.tolist()), name


def test_attention_takes_functions_of_scores(tg: Any, flex: Any, seed: int) -> None:
    torch.manual_seed(seed)
    arrays = [torch.randn(2, heads, 6, 4, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]
    slopes = torch.randn(4, dtype=torch.float64)
    mask = flex.create_block_mask(flex.and_masks(_causal, _near), None, 4, 6, 6, BLOCK_SIZE=2)
    reference = torch_flex.create_block_mask(
        torch_flex.and_masks(_causal, _near), None, 4, 6, 6, device="cpu", BLOCK_SIZE=2
    )
    assert mask.to_dense().tolist() == reference.to_dense().tolist() and tuple(mask.shape) == reference.shape

    own_slopes = tg.tensor(slopes.numpy())
    ours = [tg.tensor(t.detach().numpy(), requires_grad=True) for t in arrays]
    result, lse = flex.flex_attention(
        *ours, lambda value, b, h, q_idx, kv_idx: value + own_slopes[h] * (q_idx - kv_idx), mask, 0.3, True,
        return_lse=True,
    )  # fmt: skip
    seen = torch_flex.create_mask(torch_flex.and_masks(_causal, _near), 1, 4, 6, 6, device="cpu")
    distance = torch.arange(6)[:, None] - torch.arange(6)
    bias = (slopes[:, None, None] * distance).masked_fill(~seen[0], -torch.inf)
    q, k, v = arrays
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, scale=0.3, enable_gqa=True)
    scores = 0.3 * q @ k.repeat_interleave(2, 1).mT + bias
    assert_close(torch.from_numpy(result.detach().numpy()), expected.detach())
    assert_close(torch.from_numpy(lse.detach().numpy()), scores.logsumexp(-1).detach())
    (expected * expected).sum().backward()
    (result * result).sum().backward()
    for mine, other in zip(ours, arrays, strict=True):
        assert_close(torch.from_numpy(mine.grad.numpy()), other.grad)


def _libraries(tg: Any, flex: Any) -> Iterator[tuple[Any, Any]]:
    yield torch, torch_flex
    yield tg, flex


def test_functions_of_positions_index_step_by_step_and_reduce(tg: Any, flex: Any, seed: int) -> None:
    torch.manual_seed(seed)
    documents, biases = torch.randint(0, 2, (2, 6)).tolist(), torch.randn(3, 11, dtype=torch.float64).tolist()
    arrays = [torch.randn(2, 3, 6, 4, dtype=torch.float64).tolist() for _ in range(3)]
    results = []
    for library, module in _libraries(tg, flex):
        which, bias = library.tensor(documents), library.tensor(biases, dtype=library.float64)

        def of_a_document(b: Any, h: Any, q: Any, k: Any, which: Any = which, library: Any = library) -> Any:
            same = library.stack([which[b][q] == which[b][k], k == 0]).any()
            return same & (q >= k)

        def moved(score: Any, b: Any, h: Any, q: Any, k: Any, bias: Any = bias) -> Any:
            return score + bias[h].flatten()[q - k + 5]

        mask = module.create_block_mask(of_a_document, 2, None, 6, 6, device="cpu", BLOCK_SIZE=2)
        operands = [library.tensor(array, dtype=library.float64) for array in arrays]
        result = module.flex_attention(*operands, score_mod=moved, block_mask=mask)
        finite = module.create_mask(lambda s, b, h, q, k: s.masked_fill(q < k, -float("inf")), 1, 1, 3, 3, device="cpu")
        results.append((result.tolist(), mask.to_dense().tolist(), str(mask), finite.tolist()))
    assert_close(*(torch.tensor(result[0], dtype=torch.float64) for result in results))
    assert results[0][1:] == results[1][1:]


def test_parts_of_masks_and_masks_of_listed_blocks_are_those_of_pytorch(tg: Any, flex: Any) -> None:
    told: list[list[Any]] = []
    for library, module in _libraries(tg, flex):
        whole = module.create_block_mask(_near, 1, 2, 7, 9, device="cpu", BLOCK_SIZE=2)
        columns = library.tensor([[[[1, 0], [0, 1]]]], dtype=library.int32)
        listed = module.BlockMask.from_kv_blocks(library.tensor([[[1, 2]]], dtype=library.int32), columns, BLOCK_SIZE=4)
        masks = [whole, whole[0, -1], whole[:, 1:], whole._adjust(4, 9), listed, whole.to("cpu")]
        told.append(
            [
                (
                    repr(mask).replace(f"{library.__name__}.Size", "Size"),
                    str(mask),
                    mask.numel(),
                    mask.kv_indices.tolist(),
                )
                for mask in masks
            ]
        )
        told[-1] += [whole.to_string((2, 3)), whole.to_string(limit=1), whole.to_string(-1), len(whole.as_tuple(False))]
    assert told[0] == told[1]


def test_a_part_of_a_mask_needs_a_function_of_its_own(tg: Any, flex: Any, seed: int) -> None:
    torch.manual_seed(seed)
    arrays = [torch.randn(1, 2, 8, 4, dtype=torch.float64) for _ in range(3)]
    query, key, value = (tg.tensor(array.numpy()) for array in arrays)
    whole = flex.create_block_mask(_causal, 1, 1, 8, 8, BLOCK_SIZE=2)
    row = whole[:, :, tg.tensor([2])]
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        flex.flex_attention(query, key, value, block_mask=row)
    row.mask_mod, row.seq_lengths = lambda b, h, q, k: whole.mask_mod(b, h, q + 5, k), (1, 8)
    result, aux = flex.flex_attention(
        query[:, :, 5:6], key, value, block_mask=row, return_aux=flex.AuxRequest(lse=True, max_scores=True)
    )
    scores = arrays[0][:, :, 5:6] @ arrays[1][:, :, :6].mT / 2
    assert_close(torch.from_numpy(result.numpy()), scores.softmax(-1) @ arrays[2][:, :, :6])
    assert_close(torch.from_numpy(aux.lse.numpy()), scores.logsumexp(-1))
    assert_close(torch.from_numpy(aux.max_scores.numpy()), scores.amax(-1))
    with pytest.raises(ValueError, match=r"q_len=7 and kv_len=8"):
        flex.flex_attention(query[:, :, :7], key, value, block_mask=whole)
