"""Tensors that a program wants processes to share are not sent to them as copies, which would not change together."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest


def test_tensors_that_processes_were_to_share_are_not_sent_as_copies(tg: Any) -> None:
    shared, layer = tg.zeros(3).share_memory_(), tg.nn.BatchNorm1d(2).share_memory()
    for sent in (shared, shared[1:], [shared], layer, layer.weight, layer.running_mean):
        with pytest.raises(NotImplementedError, match="processes share no tensor"):
            ForkingPickler.dumps(sent)


def test_other_tensors_are_sent_as_copies_whatever_is_shared(tg: Any) -> None:
    tg.zeros(3).share_memory_()
    parameter = tg.nn.Parameter(tg.ones(2))
    parameter.share_memory_()
    for sent in (tg.arange(3.0), tg.nn.Parameter(tg.ones(2))):
        assert ForkingPickler.loads(ForkingPickler.dumps(sent)).tolist() == sent.tolist()
