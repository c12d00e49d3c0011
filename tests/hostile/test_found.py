"""What attacks have found and is small: each is refused in words, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

import telegrad as tg
from telegrad_protocol import dtypes
from telegrad_protocol.messages import Failure, Mode, Query
from telegrad_protocol.ops import TABLE
from tests.end_to_end.server_process import ServerProcess
from tests.session.conftest import open_talk as open_talk
from tests.session.driver import ONES, Talk, call, fails
from tests.support import plain_http
from tests.transport.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as running:
        yield running


def open_session(http: httpx.Client) -> tuple[str, dict[str, str]]:
    """The path of a new session, and the header that requests about it show."""
    hello = http.post("/v1/sessions", json={}).raise_for_status().json()
    return f"/v1/sessions/{hello['session']}", {"Telegrad-Session-Key": hello["key"]}


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with plain_http.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("instruction", "code"),
    [
        (Mode("stream", [0, 2]), "ProtocolError"), (Mode("stream", ["cpu", -1]), "NotSupportedError"),
        (Mode("stream", None), "ProtocolError"), (call("adaptive_avg_pool2d", 9, 1, None), "ArgumentError"),
    ],
    ids=str,
)  # fmt: skip
def test_values_of_other_types_are_refused(open_talk: Callable[..., Talk], instruction: Any, code: str) -> None:
    talk = open_talk()
    talk.upload(1, ONES.reshape(1, 2, 3))
    (failure,) = talk.send(instruction)
    assert isinstance(failure, Failure) and failure.code == code, failure


@pytest.mark.parametrize("query", [("derivation", 1, [True]), ("expansion", [True])], ids=lambda query: query[0])
@pytest.mark.parametrize(
    "layout",
    [((2, 3), (3,), 0), ((2,), (1, 1), 0), ((-2, 3), (3, 1), 0), ((2,), (-1,), 0), ((), (), -1)],
    ids=["few strides", "many strides", "negative size", "negative stride", "negative offset"],
)
def test_operands_that_no_tensor_is_are_refused(
    open_talk: Callable[..., Talk], query: tuple[Any, ...], layout: tuple[Any, ...]
) -> None:
    operand = (*layout, dtypes.float32.code, "cpu")
    failure = fails(open_talk(), Query(1, query[0], [TABLE["sin"].index, [0], [operand], *query[1:]]))
    assert failure.code == "ArgumentError" and "there is no tensor of shape" in failure.message, failure


@pytest.mark.parametrize("shape", [f"({2**64 - 1},)", f"({2**63},)", "(0xfff,)", f"({2**40}, {2**40})", "(-1,)"])
def test_shapes_of_npy_files_that_no_tensor_has_are_refused(http: httpx.Client, shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(118) + b"\n"
    path, key = open_session(http)
    body = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header
    answer = http.put(f"{path}/tensors/1", content=body, headers=key)
    assert 400 <= answer.status_code < 500 and answer.json()["code"] != "InternalError", answer.text
    assert http.delete(path, headers=key).status_code == 204


def test_sessions_may_be_closed_while_they_work(server: ServerProcess, http: httpx.Client) -> None:
    restarts = server.metric("telegrad_worker_restarts_total")
    steps = [{"op": "ones", "args": [[64, 64]], "out": number} for number in range(1, 30)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(15):
            path, key = open_session(http)
            works = [threads.submit(http.post, f"{path}/ops", json=steps, headers=key) for _ in range(3)]
            ends = [threads.submit(http.delete, path, headers=key) for _ in range(2)]
            codes = {request.result().status_code for request in [*works, *ends]}
            assert codes <= {200, 204, 404, 410}, codes
    assert server.metric("telegrad_worker_restarts_total") == restarts
    wait_until(lambda: server.allocated_bytes == 0, "nothing of them is left")


def test_where_descriptors_are_used_up_sessions_are_refused_and_the_others_go_on() -> None:
    with ServerProcess() as server, tg.connect(server.url):
        held = tg.arange(10)
        assert held.sum().item() == 45
        worker = server.worker
        before = worker.rlimit(psutil.RLIMIT_NOFILE)
        worker.rlimit(psutil.RLIMIT_NOFILE, (worker.num_fds() + 2, before[1]))
        with plain_http.Client(base_url=server.url, timeout=60) as http:
            answers = [http.post("/v1/sessions", json={}) for _ in range(6)]
            refused = [answer for answer in answers if answer.status_code != 201]
            assert refused and len(refused) < 6, [answer.status_code for answer in answers]
            for answer in refused:
                assert (answer.status_code, answer.json()["code"]) == (503, "CommunicationError"), answer.text
            assert held.sum().item() == 45
            worker.rlimit(psutil.RLIMIT_NOFILE, before)
            assert http.post("/v1/sessions", json={}).status_code == 201
            assert held.sum().item() == 45
        assert server.worker.pid == worker.pid
