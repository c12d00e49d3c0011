"""A short campaign of the fuzzer, which ``make fuzz`` runs for millions of frames, and what it has found before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telegrad_protocol import wire
from telegrad_protocol.messages import Failure, Read
from tests.fuzz.__main__ import campaign
from tests.fuzz.progress import Progress
from tests.session.conftest import open_talk as open_talk
from tests.session.driver import ONES, Talk, call


@pytest.mark.slow
def test_a_campaign_is_continued_and_finds_nothing(tmp_path: Path, seed: int) -> None:
    state = tmp_path / "state.json"
    first = campaign(state, 1, 600.0, 1, seed)
    assert first.frames >= 1 and first.portions == 1
    second = campaign(state, first.frames + 1, 600.0, 1, seed + 1)
    assert (second.seed, second.portions) == (seed, 2) and second.frames > first.frames
    assert not second.findings, second.findings[0].text


def test_findings_are_told_apart_by_where_they_are() -> None:
    progress = Progress(1)
    trace = 'portion 1: InternalError: add\n  File "a.py", line {}, in f\n    x()\nKeyError: 1'
    assert progress.report(trace.format(1)) and progress.report(trace.format(2))
    assert not progress.report(trace.format(1).replace("portion 1", "portion 7"))
    assert [finding.count for finding in progress.findings] == [2, 1]


FOUND: dict[str, tuple[Any, str]] = {
    "no size": (call("adaptive_max_pool1d", 9, 1, None), "ArgumentError"),
    "vectors": (call("_linalg_lstsq", (9, 10, 11), 3, 3, 0.0, "gelsd"), "ShapeError"),
    "complex tolerance": (call("linalg_pinv", 9, 1, [[0.0, 1.0]]), "DTypeError"),
    "complex rate": (
        call("_fused_adamw_", (), [1], [1], [1], [1], [], [2], [[0.0, 1.0]], 0.9, 0.9, 0.0, 0.0, False, False),
        "DTypeError",
    ),
    "endless powers": (
        call("_fused_adamw_", (), [1], [1], [1], [1], [], [2], [0.1], 0.9, 1e300, 0.0, 0.0, False, False),
        "ArgumentError",
    ),
    "no values": (call("_csr_matmul", 9, 4, 4, 2, 1, 3, False), "ShapeError"),
    "no end of powers": (call("_matrix_power", 9, 1, -1), "ArgumentError"),
    "no rows": (call("_csr_sampled_matmul", 9, 5, 4, 1, 1), "ShapeError"),
    "negative request": (Read(-1, 1), "ProtocolError"),
}


@pytest.mark.parametrize(("instruction", "code"), FOUND.values(), ids=FOUND)
def test_what_was_found_is_refused_in_words(open_talk: Callable[..., Talk], instruction: Any, code: str) -> None:
    talk = open_talk()
    talk.upload(1, ONES)
    talk.upload(2, ONES[0, 0] * 7)
    talk.upload(4, np.array([0, 1]))
    talk.upload(5, np.array(1))
    assert talk.send(call("ones", 3, [5])) == []
    talk.put(wire.BATCH, wire.encode_batch([instruction]))
    (failure,) = talk.replies()
    assert isinstance(failure, Failure) and failure.code == code, failure
