"""Every operation over HTTP and JSON, beside PyTorch: what a program without the client can compute."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from telegrad_protocol.ops import PUBLIC

from ..ops.adapters import TORCH_TO_OURS
from ..ops.database import op_db
from ..ops.harness import Comparison
from ..ops.known import SLACK, SUMS, comparable, composed, has_own_strides, is_out_of_scope, is_random
from ..ops.test_opinfo import ours_of, reference_of
from .http_adapter import HttpAdapter
from .server import HttpSession, ServerProcess

PREFERRED = (torch.float32, torch.int64, torch.bool, torch.complex64)
MOST_SAMPLES = 40
QUICK_STEP = 3
"""The default suite takes one sample of every third entry."""


@pytest.fixture(scope="module")
def session() -> Iterator[HttpSession]:
    with ServerProcess(LOG_LEVEL="ERROR") as server:
        yield HttpSession(server)


def test_every_operation_is_there_under_its_name(session: HttpSession) -> None:
    unknown = []
    for name in PUBLIC:
        answer = session.server.http.post(
            f"/v1/sessions/{session.id}/ops", json={"op": name}, headers={"Telegrad-Session-Key": session.key}
        )
        if answer.status_code >= 500 or "there is no operation" in answer.text:
            unknown.append(f"{name}: {answer.text}")
    assert not unknown, "\n".join(unknown)


def test_operations_agree_with_pytorch_over_http(session: HttpSession) -> None:
    failures = []
    for info in op_db[::QUICK_STEP]:
        dtype = next((dtype for dtype in PREFERRED if info.supports_dtype(dtype, "cpu")), None)
        if ours_of(info.name) is not None and dtype is not None:
            failures += failures_of(info, dtype, session, most=1)
    assert not failures, f"{len(failures)} entries:\n" + "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param(d, id=str(d).removeprefix("torch.")) for d in TORCH_TO_OURS])
def test_all_samples_agree_with_pytorch_over_http(session: HttpSession, dtype: torch.dtype) -> None:
    failures = []
    for info in op_db:
        if ours_of(info.name) is not None and info.supports_dtype(dtype, "cpu"):
            failures += failures_of(info, dtype, session, MOST_SAMPLES)
    assert not failures, f"{len(failures)} samples:\n" + "\n".join(failures)


def failures_of(info: Any, dtype: torch.dtype, session: HttpSession, most: int) -> list[str]:
    """Compare the first samples of an entry of PyTorch's database; what went wrong with them."""
    torch.manual_seed(0)  # as the other tests of the database do, whose tolerances are for this
    comparison = Comparison(
        HttpAdapter(session), slack=SLACK.get(info.name, 1.0), check_strides=not has_own_strides(info.name),
        sums=info.name in SUMS or has_own_strides(info.name),
    )  # fmt: skip
    failures, count = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about its own functions
        for sample in info.sample_inputs("cpu", dtype):
            args = (sample.input, *sample.args)
            if is_out_of_scope(info.name, args, sample.kwargs):
                continue
            ours = composed(info, comparison.adapter.function(ours_of(info.name)))
            try:
                comparison.run(
                    comparable(info, reference_of(info, dtype)), comparable(info, ours), args, sample.kwargs,
                    gradients=False, values=not is_random(info.name),
                )  # fmt: skip
            except Exception as error:  # every entry that fails is listed
                failures.append(f"{info.name} {dtype}: {type(error).__name__}: {str(error)[:300]}")
            count += 1
            if count >= most:
                break
    return failures
