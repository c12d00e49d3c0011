"""Random trainings come to the same whether what they repeat is recognised or not, and to what PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import backward
from tests.support.draws import drawn

from .changing_trainings import Trainer, random_training
from .stretches import call_by_call

pytestmark = pytest.mark.filterwarnings("ignore")
TOLERANCE = 1e-6
"""Of the largest element; everything is computed in float64."""
NUDGE, SLACK = 1e-13, 1e-9
"""A result that this change of the parameters moves by more is not compared with PyTorch's, nor are later ones."""


@pytest.fixture
def tg(captures: None, tg: Any) -> Any:
    """The client library, with a session that was opened after that."""
    return tg


@pytest.mark.parametrize("number", drawn([pytest.param(n, id=f"training_{n}") for n in range(200)], 4))
def test_trainings_come_to_what_their_calls_come_to(
    tg: Any, number: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = random_training(np.random.default_rng(seed))
    print(training.text, training.optimizer, *training.changes.items(), sep="\n")
    with np.errstate(all="ignore"), monkeypatch.context() as patch, call_by_call(tg):
        patch.setattr(backward, "_repeatable_edge", lambda roots: None)
        expected = Trainer(tg, training, seed).run()
    with np.errstate(all="ignore"):
        for _ in range(2):
            _require_same(Trainer(tg, training, seed).run(), expected, 0.0)
    theirs, nearby = (Trainer(torch, training, seed, nudged).run() for nudged in (0.0, NUDGE))
    stable = list(_stable(expected, theirs, nearby))
    _require_same([one for one, _ in stable], [other for _, other in stable], TOLERANCE)


def _stable(ours: list[Any], theirs: list[Any], nearby: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what comes before the first result that rounding may have changed: some trainings diverge."""
    for one, other, third in zip(ours, theirs, nearby, strict=True):
        if other is not None and third is not None and not np.allclose(other, third, rtol=SLACK, atol=SLACK):
            return
        yield one, other


def _require_same(ours: Sequence[Any], theirs: Sequence[Any], tolerance: float) -> None:
    assert [one is None for one in ours] == [one is None for one in theirs]
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one is not None:
            size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * size, err_msg=f"result {number}")
