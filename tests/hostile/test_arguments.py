"""Whatever the arguments of an operation are on the wire, it gives a result or an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import psutil
import pytest

from telegrad_protocol.messages import Free, Mode
from tests.end_to_end.server_process import ServerProcess

from .arguments import UNKNOWN, Attempt, attempts, uploads
from .raw_client import RawClient, call, call_of

MIB = 1 << 20
RESULT = 100
AT_ONCE = 200
"""Calls between two questions, after which the tensors are made anew: some are changed in place."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    limits = {
        "TELEGRAD_OPERATION_WORK": "1e8", "TELEGRAD_SESSION_QUOTA_BYTES": str(64 * MIB),
        "TELEGRAD_HOST_QUOTA_BYTES": str(128 * MIB), "TELEGRAD_INSTRUCTION_SECONDS": "30",
    }  # fmt: skip
    with ServerProcess(**limits) as running:
        yield running


@pytest.mark.parametrize("of_each", [1, pytest.param(1000, marks=pytest.mark.slow)], ids=["some", "all"])
def test_no_argument_is_a_defect(server: ServerProcess, of_each: int, seed: int) -> None:
    random = Random(seed)
    worker = server.worker
    made = attempts(random, of_each)
    if of_each == 1:  # a part of them, another one with each seed
        made = islice((attempt for attempt in made if random.random() < 0.25), 3000)
    with RawClient(server) as client:
        while pending := list(islice(made, AT_ONCE)):
            try_all(client, pending)
    assert server.worker.pid == worker.pid, "the worker was started again"
    assert psutil.pid_exists(worker.pid)


def try_all(client: RawClient, pending: list[Attempt]) -> None:
    """Send calls, each in a thread of its own, which no other one's failure stops, and look at all failures."""
    client.failures.clear()
    client.send(Mode("thread", 0), *uploads())
    for number, attempt in enumerate(pending, 1):
        client.send(Mode("thread", number), call_of(attempt.op, RESULT, attempt.args), Free([RESULT]))
    last = len(pending) + 1
    client.send(Mode("thread", last), call("neg", RESULT, UNKNOWN), Mode("thread", 0))
    client.ask()
    assert not client.closed, (client.closed, client.failures[-1:], pending)
    defects = [failure for failure in client.failures if failure.code == "InternalError"]
    assert not defects, [
        (failure, pending[failure.thread - 1].args) for failure in defects if 0 < failure.thread < last
    ]
    assert all(failure.message for failure in client.failures)
    assert any(failure.thread == last for failure in client.failures), "the calls did not arrive"
