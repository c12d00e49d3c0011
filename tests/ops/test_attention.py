"""Attention with dropout by the steps that keep no scores: what is dropped, and that gradients drop the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .adapters import EngineAdapter, to_torch

SIZE, P, SCALE = 64, 0.3, 0.2
PLACES = [("cpu", torch.float32, 1e-5), pytest.param("cuda:0", torch.float16, 5e-3, marks=pytest.mark.gpu)]


def _operands(dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, and a value that shows the weights."""
    torch.manual_seed(int(np.random.default_rng().integers(1 << 31)))
    print(f"seed {torch.initial_seed()}")
    made = [torch.randn(2, 3, SIZE, SIZE).to(dtype) for _ in range(2)]
    return [*made, torch.eye(SIZE).expand(2, 3, SIZE, SIZE).contiguous().to(dtype)]


def _weights(query: torch.Tensor, key: torch.Tensor, is_causal: bool) -> torch.Tensor:
    scores = query @ key.mT * SCALE
    hidden = torch.ones(SIZE, SIZE).triu(1).bool()
    return (scores.masked_fill(hidden, -torch.inf) if is_causal else scores).softmax(-1)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("device", "dtype", "tolerance"), PLACES)
def test_dropped_weights_and_their_gradients(
    device: str, dtype: torch.dtype, tolerance: float, is_causal: bool
) -> None:
    adapter = EngineAdapter(device)
    tensors = _operands(dtype)
    values = [adapter.tensor(t, True) for t in tensors]
    state = adapter.tensor(torch.tensor([1234, 5678]))

    def attend(state: Any) -> Any:
        return adapter.functional._dropout_attention(*values, None, state, is_causal, SCALE, P)[0]

    output = attend(state)
    shown = to_torch(adapter.numpy(output)).double()
    doubles = [t.double().requires_grad_() for t in tensors]
    weights = _weights(*doubles[:2], is_causal)
    visible = weights.detach() > 1e-3
    kept = (shown != 0) & visible
    assert abs(kept.sum() / visible.sum() - (1 - P)) < 0.03
    dropped = kept.double() / (1 - P)
    expected = (weights * torch.where(visible, dropped, 0)) @ doubles[2]
    assert ((expected - shown)[visible].abs() < tolerance * 2).all()
    cotangent = torch.randn(output.meta.shape).to(dtype)
    wanted = torch.autograd.grad(
        (weights * torch.where(visible, dropped, 1.0)) @ doubles[2], doubles, cotangent.double()
    )
    found = adapter.grad([output], [adapter.tensor(cotangent)], values, False)
    for mine, reference in zip(found, wanted, strict=True):
        difference = (to_torch(adapter.numpy(mine)).double() - reference).abs().max()
        assert difference < max(tolerance, 2e-3) * 4 * reference.abs().max()
    assert np.array_equal(adapter.numpy(attend(state)), adapter.numpy(output))
    assert not np.array_equal(adapter.numpy(attend(adapter.tensor(torch.tensor([9, 5678])))), adapter.numpy(output))


def test_what_tells_nothing_is_refused() -> None:
    adapter = EngineAdapter()
    values = [adapter.tensor(t, True) for t in _operands(torch.float32)]
    state = adapter.tensor(torch.tensor([1, 2]))
    with pytest.raises(ArgumentError, match="do not tell what to drop"):
        adapter.functional._dropout_attention(*values, None, state, False, SCALE, 1.0)
    output = adapter.functional._dropout_attention(*values, None, state, False, SCALE, P)[0]
    ones = adapter.tensor(torch.ones(2, 3, SIZE, SIZE), True)
    (first,) = adapter.grad([output], [ones], values[:1], True)
    with pytest.raises(NotSupportedError, match="no second derivative"):
        adapter.grad([first], [ones], [ones], False)


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
def test_dropout_on_a_gpu_follows_the_session_s_seed(masked: bool) -> None:
    adapter = EngineAdapter("cuda:0")
    query, key, value = map(adapter.tensor, _operands(torch.float16))
    mask = adapter.tensor(torch.ones(SIZE, SIZE).tril().bool()) if masked else None
    generator = adapter.context.generators[adapter.device]

    def attend() -> np.ndarray:
        return adapter.numpy(adapter.functional.scaled_dot_product_attention(query, key, value, mask, P))

    generator.manual_seed(7)
    first, second = attend(), attend()
    generator.manual_seed(7)
    assert np.array_equal(attend(), first)
    assert not np.array_equal(first, second)
    share = (first[..., np.tril_indices(SIZE)[0], np.tril_indices(SIZE)[1]] == 0).mean()
    assert abs(share - P) < 0.03
