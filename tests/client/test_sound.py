"""Operators for sound, which take the place of a compiled library's: held against sums over all paths."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def sound(tg: Any, tmp_path: Path) -> Any:
    path = tmp_path / "sound.so"
    path.write_bytes(b"\x7fELF\x00_lfilter_core_loop(Tensor\x00")
    tg.ops.load_library(path)
    assert tg.ops._torchaudio.is_align_available() and tg.ops._torchaudio.cuda_version() is None
    return tg.ops.torchaudio


def test_a_filter_takes_its_latest_outputs_into_account(tg: Any, sound: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    signal, coefficients = draw.standard_normal((2, 3, 20)), draw.standard_normal((3, 3)) * 0.3
    wanted = np.zeros((2, 3, 22))
    for place, channel in itertools.product(range(20), range(3)):
        before = wanted[:, channel, place : place + 3] @ coefficients[channel]
        wanted[:, channel, place + 2] = signal[:, channel, place] - before
    output = tg.zeros(2, 3, 22, dtype=tg.float64)
    sound._lfilter_core_loop(tg.from_numpy(signal), tg.from_numpy(coefficients), output)
    np.testing.assert_allclose(output.numpy(), wanted, rtol=1e-12)


def test_alignment_finds_the_best_of_all_paths(tg: Any, sound: Any, seed: int) -> None:
    scores = np.random.default_rng(seed).standard_normal((6, 4))
    paths = [
        path for path in itertools.product(range(4), repeat=6)
        if [label for label, _ in itertools.groupby(path) if label] == [1, 2, 2]
    ]  # fmt: skip
    best = max(paths, key=lambda path: sum(scores[frame, label] for frame, label in enumerate(path)))
    one = tg.tensor([6])
    path, _ = sound.forced_align(tg.from_numpy(scores[None]), tg.tensor([[1, 2, 2]]), one, one // 2, 0)
    assert tuple(path[0].tolist()) == best
    with pytest.raises(ValueError, match="too long for CTC"):
        sound.forced_align(tg.from_numpy(scores[None]), tg.tensor([[1, 1, 1, 1]]), one, tg.tensor([4]), 0)


def _summed(scores: Any, labels: list[int]) -> float:
    """Return the loss of a transducer, by going along every path."""
    frames, total = len(scores), -np.inf
    for emits in itertools.combinations(range(frames + len(labels) - 1), len(labels)):
        t = u = 0
        own = 0.0
        for step in range(frames + len(labels) - 1):
            is_emission = step in emits
            own += scores[t, u, labels[u] if is_emission else 0]
            t, u = (t, u + 1) if is_emission else (t + 1, u)
        total = np.logaddexp(total, own + scores[t, u, 0])
    return -float(total)


def test_a_transducers_loss_is_the_sum_over_all_paths(tg: Any, sound: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    logits, labels, step = draw.standard_normal((1, 4, 3, 5)), [2, 4], 1e-5

    def loss(given: Any) -> float:
        return _summed((given - np.logaddexp.reduce(given, axis=-1, keepdims=True))[0], labels)

    lengths = tg.tensor([4], dtype=tg.int32), tg.tensor([2], dtype=tg.int32)
    given = tg.tensor([labels], dtype=tg.int32)
    losses, slopes = sound.rnnt_loss_forward(tg.from_numpy(logits), given, *lengths, 0, -1.0, True)
    assert losses.tolist() == pytest.approx([loss(logits)])
    for index in draw.integers(0, logits.size, 8):
        moved = np.zeros(logits.size)
        moved[index] = step
        slope = (loss(logits + moved.reshape(logits.shape)) - loss(logits - moved.reshape(logits.shape))) / (2 * step)
        assert slopes.reshape(-1)[int(index)].item() == pytest.approx(slope, abs=1e-6)
