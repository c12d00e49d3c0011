"""A victim's round trips beside each attack: their 99th percentile stays within three times its own and one slice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.server_process import ServerProcess
from tests.transport.waiting import wait_until

from .attacks import ATTACKS, DOOR
from .neighbours import attacked

pytestmark = pytest.mark.slow
REFUSED = {
    "nested_gradients": "LimitExceededError", "huge_windows": "LimitExceededError",
    "huge_convolution": "LimitExceededError", "long_attention": "LimitExceededError", "many_lists": "RequestError",
    "deep_lists": "RequestError",
}  # fmt: skip
"""What the attacker is told, where an attack is refused."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server with the settings that it has by default, and one thread for its products."""
    with ServerProcess(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1") as running:
        yield running


@pytest.mark.parametrize("attack", [*ATTACKS, *DOOR])
def test_a_victim_hardly_notices_an_attack(server: ServerProcess, attack: str) -> None:
    attempts, answers = attacked(server, attack)
    print(attack, attempts, answers)
    assert attempts[-1].is_bounded, attempts
    expected = REFUSED.get(attack)
    assert answers, "the attacker did nothing"
    assert set(answers) == {expected} if expected else "InternalError" not in answers, answers
    wait_until(lambda: server.sessions == 0 and server.allocated_bytes == 0, "nothing of either is left")
    assert server.metric("telegrad_worker_restarts_total") == 0
