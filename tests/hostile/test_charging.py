"""What a session makes the service hold besides its tensors' elements: bounded, charged, and given back at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psutil
import pytest

from server.gateway.tenancy.tenants import digest
from telegrad_protocol.messages import Call, Free, Mode, RandomState, Read, SetRequiresGrad, Site, Upload
from tests.end_to_end.server_process import ServerProcess
from tests.support import plain_http
from tests.transport.waiting import wait_until

from .raw_client import FLOAT, RawClient, call, number_of

MIB = 1 << 20
MEMORY, HOST = 64 * MIB, 40 * MIB
OVER = 64 * MIB
"""How far the service may be over the quota."""
BATCH = 64


TOKENS = {name: f"the-token-of-{name}" for name in ("attacker", "victim")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    tenants = tmp_path_factory.mktemp("charging") / "tenants.toml"
    limits = f"memory = {MEMORY}\nhost_memory = {HOST}\n"
    tables = [f'[{name}]\ntoken_sha256 = "{digest(token)}"\n{limits}' for name, token in TOKENS.items()]
    tenants.write_text("".join(tables))
    with ServerProcess(TELEGRAD_TENANTS=str(tenants), TELEGRAD_ADMIN_TOKEN="the-admins-token") as running:
        running.token = "the-admins-token"
        with RawClient(running, TOKENS["attacker"]) as first:  # what is imported late is not an attacker's
            first.send(call("ones", 1, [3], None, None), call("tanh", 2, 1), Read(99, 2))
            assert first.reply_to(99) is not None
        yield running


@contextlib.contextmanager
def bounded(server: ServerProcess, quota: int = HOST) -> Iterator[RawClient]:
    """Assert that gateway and worker grow by the quota and a little, and that a neighbour goes on meanwhile."""
    processes = [psutil.Process(server.process.pid), server.worker]
    before = sum(process.memory_info().rss for process in processes)
    with RawClient(server, TOKENS["victim"]) as victim:
        victim.send(call("arange", 1, 1000, None, None))
        with victim.heartbeats(), RawClient(server, TOKENS["attacker"]) as attacker:
            yield attacker
            grown = sum(process.memory_info().rss for process in processes) - before
            assert grown < quota + OVER, f"the service grew by {grown / MIB:.0f} MiB"
            victim.send(call("sum", 2, 1, None, False, None), Read(7, 2))
            data = victim.reply_to(7)
            assert int.from_bytes(data.data, "little") == 499_500, "the neighbour's session is not what it was"
    wait_until(lambda: server.sessions == 0 and server.allocated_bytes == 0, "everything is given back")


def flood(attacker: RawClient, batches: Iterator[list[object]], ask_every: int = 50) -> None:
    """Send batches until something fails or the session ends."""
    for count, batch in enumerate(batches):
        attacker.send(*batch)
        if count % ask_every == 0:
            attacker.ask()
        if attacker.failures or attacker.closed:
            return
    attacker.ask()


def assert_told(attacker: RawClient, kind: str = "TELEGRAD_HOST_QUOTA_BYTES") -> None:
    """The attacker has got a typed error with the limit, what is used, and what to do."""
    assert attacker.failures, "nothing was refused"
    first = attacker.failures[0]
    assert first.code in ("OutOfMemoryError", "LimitExceededError"), first
    assert kind in first.message, first.message


def sites(attacker: RawClient) -> Iterator[list[object]]:
    numbers = iter(range(1, 1 << 30))
    while True:
        yield [Site(number, "x" * 1000, number, "function") for number, _ in zip(numbers, range(BATCH))]


def names(attacker: RawClient) -> Iterator[list[object]]:
    attacker.send(call("ones", 1, [1], None, None))
    for first in range(10, 1 << 30, BATCH):
        yield [call("unsqueeze", first + i, 1, 0) for i in range(BATCH)]


def nodes(attacker: RawClient) -> Iterator[list[object]]:
    attacker.send(call("ones", 1, [1], None, None), SetRequiresGrad(1, True), call("tanh", 10, 1))
    for first in range(11, 1 << 30, BATCH):
        ids = range(first, first + BATCH)
        yield [call("neg", id, id - 1, freed=(id - 2,) if id > 12 else ()) for id in ids]


def wide_nodes(attacker: RawClient) -> Iterator[list[object]]:
    attacker.send(call("ones", 1, [1], None, None), SetRequiresGrad(1, True), call("cat", 10, [1, 1], 0))
    many = [1] * 4000
    for id in range(11, 1 << 30):
        yield [call("stack", 9, many, 0), call("sum", 8, 9, None, False, None), call("add", id, 8, id - 1, 1),
               Free([8, 9, id - 1])]  # fmt: skip


def states(attacker: RawClient) -> Iterator[list[object]]:
    for first in range(1, 1 << 30, BATCH):
        yield [RandomState(first + i, False) for i in range(BATCH)]


ENDLESS: dict[str, Callable[[RawClient], Iterator[list[object]]]] = {
    "sites": sites, "names": names, "nodes": nodes, "wide nodes": wide_nodes, "states": states,
}  # fmt: skip


@pytest.mark.parametrize("attack", ENDLESS.values(), ids=ENDLESS)
def test_what_is_noted_of_a_session_is_bounded(
    server: ServerProcess, attack: Callable[[RawClient], Iterator[list[object]]]
) -> None:
    with bounded(server, HOST + MEMORY) as attacker:
        flood(attacker, attack(attacker))
        assert_told(attacker)
        assert "besides the elements of its tensors" in attacker.failures[0].message
        assert "delete tensors" in attacker.failures[0].message
        attacker.send(Free(list(range(10, 1 << 17))))
        attacker.failures.clear()
        attacker.send(call("ones", 3, [1], None, None))
        if attack not in (sites, states):
            attacker.ask()
            assert not attacker.failures, "who has freed what was too much goes on"


def test_results_that_were_never_computed_end_the_session_that_asks_for_ever_more(server: ServerProcess) -> None:
    with bounded(server) as attacker:
        attacker.send(call("neg", 2, 1))  # fails: nothing follows it
        zero = number_of("zeros")
        for first in range(10, 40_000_000, 20_000):
            attacker.send(Call(zero, 0, tuple(range(first, first + 20_000)), [[1], None, None]))
            if attacker.closed:
                break
        attacker.reply_to(0)
        assert attacker.closed, "the session goes on and on"
        assert any("TELEGRAD_HOST_QUOTA_BYTES" in failure.message for failure in attacker.failures), attacker.failures


def test_lists_of_nothing_are_refused_before_they_are_decoded(server: ServerProcess) -> None:
    nested = b"\xdd" + (8 * MIB - 1000).to_bytes(4, "big") + b"\x90" * (8 * MIB - 1000)
    body = b"\x91\x94\x00\x00\x91\x01" + nested  # one call whose arguments are empty lists
    with bounded(server) as attacker:
        attacker.send_body(body)
        attacker.ask()
        assert [failure.code for failure in attacker.failures] == ["LimitExceededError"]
        assert "would take" in attacker.failures[0].message


def test_copies_that_wait_to_be_read_are_charged(server: ServerProcess) -> None:
    """Sixteen readings of half the memory in another order, of which the client reads nothing."""
    rows = MEMORY // 2 // 4 // 1024
    with bounded(server, HOST + MEMORY) as attacker:
        attacker.send(call("zeros", 1, [rows, 1024], None, None), call("t", 2, 1))
        attacker.send(*[Read(100 + i, 2) for i in range(16)])
        attacker.reply_to(115)
        assert any("MiB of lines, copies" in f.message for f in attacker.failures)


def test_downloads_over_http_are_charged(server: ServerProcess) -> None:
    with bounded(server, HOST + MEMORY) as attacker, contextlib.ExitStack() as stack:
        attacker.send(call("zeros", 1, [5 * MIB], None, None))
        attacker.ask()
        codes = []
        for _ in range(8):
            http = stack.enter_context(plain_http.Client(timeout=60))
            request = http.build_request("GET", f"{attacker.path}/tensors/1", headers=attacker.headers)
            answer = http.send(request, stream=True)
            codes.append(answer.status_code)
            if answer.status_code != 200:
                answer.read()
                assert answer.json()["code"] == "OutOfMemoryError", answer.text
                assert "TELEGRAD_HOST_QUOTA_BYTES" in answer.json()["detail"]
            stack.callback(answer.close)
        assert codes[0] == 200 and 507 in codes


@pytest.mark.slow
def test_replies_that_many_sessions_of_a_tenant_do_not_read_share_a_bound(server: ServerProcess) -> None:
    """Twenty sessions ask for 20 MB each in small pieces, and read none of it."""
    with bounded(server, HOST + MEMORY) as first, contextlib.ExitStack() as stack:
        sessions = [first, *[stack.enter_context(RawClient(server, TOKENS["attacker"])) for _ in range(19)]]
        for session in sessions:
            session.send(call("zeros", 1, [15_000], None, None))
            for batch in range(8):
                session.send(*[Read(1000 + 40 * batch + i, 1) for i in range(40)])
        wait_until(lambda: server.metric("telegrad_operations_total") >= len(sessions), "all were served")


def test_a_long_tensor_is_not_taken_apart_into_more_tensors_than_the_quota_has_room_for(server: ServerProcess) -> None:
    with bounded(server) as attacker:
        attacker.send(call("zeros", 1, [1], None, None), call("expand", 2, 1, [200_000]))
        attacker.send(Call(number_of("unbind"), 0, (3, 4), [2, 0]))
        attacker.ask()
        assert_told(attacker)
        answer = attacker.request("POST", "/ops", json={"op": "unbind", "args": [{"tensor": 2}]})
        assert (answer.status_code, answer.json()["code"]) == (507, "OutOfMemoryError")


def test_histories_are_charged(server: ServerProcess) -> None:
    with bounded(server) as attacker:
        attacker.ask("record_memory_history", "cpu", "all", 200_000, "all", False, [])
        assert_told(attacker)


def test_the_sessions_of_a_tenant_share_one_quota(server: ServerProcess) -> None:
    def fill(session: RawClient) -> None:
        for number in range(8):
            session.send(*[Site(64 * number + i, "y" * 8000, i, "f") for i in range(BATCH)])
        session.ask()

    with bounded(server) as first, contextlib.ExitStack() as stack:
        sessions = [first, *[stack.enter_context(RawClient(server, TOKENS["attacker"])) for _ in range(15)]]
        for session in sessions:  # 4 MB each
            fill(session)
        refused = [session for session in sessions if session.failures]
        assert len(refused) >= 5
        for session in refused:
            assert_told(session)
            assert "other sessions of the tenant hold" in session.failures[0].message
        sessions[1].end()
        refused[-1].failures.clear()
        refused[-1].send(*[Site(i, "y" * 8000, i, "f") for i in range(16)])
        refused[-1].ask()
        assert not refused[-1].failures, [f.message for f in refused[-1].failures][:1] + [
            "what one gives back, others may have"
        ]


def test_a_chain_of_inline_uploads_is_charged_to_the_memory(server: ServerProcess) -> None:
    with bounded(server, MEMORY + HOST) as attacker:
        data = bytes(60_000)
        for id in range(1, 3000):
            attacker.send(Upload(id, 0, FLOAT, (15_000,), "cpu", data))
            if id % 100 == 0:
                attacker.ask()
            if attacker.failures:
                break
        assert_told(attacker, "quota")


def test_a_trace_that_nobody_fetches_keeps_its_last_lines(server: ServerProcess) -> None:
    with bounded(server) as attacker:
        attacker.send(call("ones", 1, [1], None, None), Mode("trace", True))
        for _ in range(1500):
            attacker.send(*[call("neg", 2, 1) for _ in range(BATCH)])
        lines = attacker.ask("trace")
        assert 60_000 < len(lines) <= 1 << 16


def test_messages_of_failures_are_short_whatever_was_sent(server: ServerProcess) -> None:
    with bounded(server) as attacker:
        attacker.send(Mode("grad" * 100_000, ["x" * 1000] * 1000), Mode("stream", [0, 2]))
        attacker.ask()
        assert attacker.failures[0].code == "ProtocolError"
        assert len(attacker.failures[0].message) < 40_000
