"""Sessions that one client leaves and another one comes back to: real processes, one server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import telegrad
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    AuthenticationError,
    NotSupportedError,
    SessionDetachedError,
    SessionInUseError,
    SessionLostError,
)

from ..transport.fault_proxy import FaultProxy
from ..transport.waiting import wait_until
from .server_process import ServerProcess

Start = Callable[..., subprocess.Popen[str]]
TRAIN = """
import sys
import telegrad as tg
from telegrad import nn

tg.manual_seed(7)
tg.set_default_dtype(tg.float64)
model = nn.Linear(4, 3)
x, y = tg.randn(8, 4), tg.randn(8, 3)
optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step():
    optimizer.zero_grad()
    loss = ((model(x) + 0.01 * tg.randn(8, 3) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


"""
FIRST = (
    "import sys; import telegrad as tg; tg.connect(sys.argv[1], lease=60)\n"
    + TRAIN
    + """
losses = [step() for _ in range(3)]
wasted = tg.zeros(1 << 20)
with tg.no_grad():
    left = tg.detach(model=model.state_dict(), optimizer=optimizer.state_dict(), data=(x, y))
print(left.session, left.key, *losses, flush=True)
"""
)
SECOND = "import sys; import telegrad as tg; tg.connect(sys.argv[1], session=sys.argv[2], key=sys.argv[3])\n" + TRAIN
for _old, _new in (
    ("tg.manual_seed(7)\n", ""),
    ("tg.randn(8, 4), tg.randn(8, 3)\noptimizer", "tg.kept.pop('data')\noptimizer"),
    ("model = nn", "state = tg.get_rng_state('cpu')\nmodel = nn"),
    ("x, y =", "tg.set_rng_state(state, 'cpu')\nx, y ="),
):
    assert _old in SECOND
    SECOND = SECOND.replace(_old, _new)
SECOND += """
model.load_state_dict(tg.kept.pop("model"))
optimizer.load_state_dict(tg.kept.pop("optimizer"))
print(len(tg.kept), *[step() for _ in range(3)], flush=True)
"""


def _finish(program: subprocess.Popen[str]) -> list[str]:
    out, error = program.communicate()
    assert program.returncode == 0, error
    return out.split()


def test_a_training_goes_on_in_another_process_as_if_nothing_had_been(
    server: ServerProcess, start_program: Start
) -> None:
    whole = FIRST.replace("range(3)", "range(6)").replace("tg.detach(", "dict(").replace("left.session, left.key, ", "")
    expected = _finish(start_program(whole, server.url))
    session, key, *losses = _finish(start_program(FIRST, server.url))
    assert server.sessions == 1
    assert server.allocated_bytes < 1 << 20  # what was not kept is free
    kept, *later = _finish(start_program(SECOND, server.url, session, key))
    assert kept == "0"
    assert [*losses, *later] == expected
    assert server.sessions == 0


@pytest.fixture
def tg(server: ServerProcess) -> Any:
    """The library, with a session that the test may leave."""
    telegrad.connect(server.url)
    yield telegrad
    telegrad.disconnect()


def _come_back(server: ServerProcess, left: Any, **options: Any) -> Any:
    return telegrad.connect(left.url, session=left.session, key=left.key, **options)


def test_everything_that_can_be_kept_comes_back(tg: Any, server: ServerProcess) -> None:
    x = tg.arange(6, dtype=tg.float32).reshape(2, 3)
    weight = tg.ones(3, requires_grad=True)
    (weight * 2).sum().backward()
    result = weight * 3
    named = {
        "x": x, "view": x.t()[1:], "weight": weight, "result": result, "again": weight,
        "nested": {"a": [x, (weight, None, 2.5, "text")], 3: tg.tensor([True, False])}, "number": 7,
        "half": tg.ones(2, dtype=tg.bfloat16), "empty": tg.zeros(0, 4), "scalar": tg.tensor(5),
    }  # fmt: skip
    left = tg.detach(**named)
    assert left.kept == tuple(named)
    _come_back(server, left)
    kept = dict(tg.kept)
    assert list(kept) == list(named)
    assert kept["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (kept["view"].shape, kept["view"].stride(), kept["view"].tolist()) == ((2, 2), (1, 3), [[1, 4], [2, 5]])
    weight = kept["weight"]
    assert weight.is_leaf and weight.requires_grad and weight.grad.tolist() == [2, 2, 2]
    assert kept["result"].is_leaf and kept["result"].requires_grad and kept["result"].tolist() == [3, 3, 3]
    assert kept["again"] is weight
    assert kept["nested"]["a"][0] is kept["x"]
    assert kept["nested"]["a"][1] == (weight, None, 2.5, "text")
    assert kept["nested"][3].tolist() == [True, False] and kept["number"] == 7
    assert (kept["half"].dtype, kept["empty"].shape, kept["scalar"].item()) == (tg.bfloat16, (0, 4), 5)
    kept["view"].mul_(10)
    assert kept["x"].tolist() == [[0, 10, 20], [3, 40, 50]]  # one memory, as before
    (weight * kept["x"]).sum().backward()
    assert weight.grad.tolist() == [2 + 3, 2 + 50, 2 + 70]
    assert "x: float32[2,3] on cpu" in repr(tg.kept) and "weight: float32[3] on cpu, requires_grad" in repr(tg.kept)


def test_what_is_no_longer_kept_is_freed_and_what_is_kept_outlives_its_handles(tg: Any, server: ServerProcess) -> None:
    big = tg.zeros(1 << 18)
    tg.kept["big"] = big
    tg.kept["small"] = tg.zeros(1)
    del big
    tg.kept["small"] = tg.ones(2)
    assert tg.kept["big"].sum().item() == 0
    left = tg.detach()
    assert 1 << 20 <= server.allocated_bytes < 2 << 20
    _come_back(server, left)
    assert tg.kept["small"].tolist() == [1, 1]
    taken = tg.kept.pop("big")
    assert taken.shape == (1 << 18,) and list(tg.kept) == ["small"]
    del taken
    tg.kept.clear()
    tg.ones(1).item()
    wait_until(lambda: server.allocated_bytes < 1 << 20, "it was freed")


def test_a_session_in_use_is_refused_unless_it_is_taken_over(tg: Any, server: ServerProcess) -> None:
    first = tg.kept
    first["x"] = tg.tensor([1.0])
    lost = tg.ones(3)
    connection = telegrad._session.connect.current_connection()
    with pytest.raises(SessionInUseError, match=r"in use by process \d+ on .*takeover=True"):
        telegrad.connect(server.url, session=connection.id, key=connection.key)
    second = telegrad.connect(server.url, session=connection.id, key=connection.key, takeover=True)
    assert tg.kept["x"].tolist() == [1.0]
    with pytest.raises(SessionDetachedError, match=r"another client has attached to the session: process \d+"):
        lost.tolist()
    connection.disconnect()
    assert tg.kept["x"].item() == 1.0  # the one that lost the session does not end it
    second.disconnect()
    telegrad.connect(server.url)


def test_wrong_keys_and_unknown_sessions_are_refused(tg: Any, server: ServerProcess) -> None:
    left = tg.detach()
    with pytest.raises(AuthenticationError, match="not the key") as refused:
        telegrad.connect(server.url, session=left.session, key=left.key[:-1] + "?")
    assert left.key not in str(refused.value)
    with pytest.raises(SessionLostError, match="there is no session"):
        telegrad.connect(server.url, session="0" * 16, key=left.key)
    with pytest.raises(SessionLostError, match="not the id of a session"):
        telegrad.connect(server.url, session="../x", key=left.key)
    for wrong in ({"key": left.key}, {"takeover": True}):
        with pytest.raises(ArgumentError, match="connect: "):
            telegrad.connect(server.url, **wrong)
    _come_back(server, left).disconnect()
    with pytest.raises(SessionLostError, match="closed"):
        _come_back(server, left)
    telegrad.connect(server.url)


def test_a_detached_session_ends_with_its_lease(tg: Any, server: ServerProcess) -> None:
    x = tg.ones(2)
    left = tg.detach(x=x, lease=1)
    assert left.lease == 1
    with pytest.raises(SessionDetachedError, match="left by detach"):
        x.tolist()
    wait_until(lambda: not server.sessions, "the lease ended")
    with pytest.raises(SessionLostError, match="for 1 s, and its lease ended"):
        _come_back(server, left)
    telegrad.connect(server.url)


def test_what_detach_returns_says_how_to_come_back(tg: Any, server: ServerProcess) -> None:
    left = tg.detach(a=tg.ones(1))
    call = repr(left).splitlines()[1]
    assert call == f"tg.connect({server.url!r}, session={left.session!r}, key={left.key!r})"
    _come_back(server, left)
    assert "keeps a;" in repr(left)


def test_modes_start_anew_and_generators_go_on(tg: Any, server: ServerProcess) -> None:
    tg.manual_seed(3)
    expected = [tg.rand(2).tolist() for _ in range(2)]
    tg.manual_seed(3)
    first = tg.rand(2).tolist()
    x = tg.ones(2, requires_grad=True)
    with tg.no_grad(), tg.autocast("cpu"):
        _ = x * 2  # the server has these modes now
        left = tg.detach(x=x)
    _come_back(server, left)
    assert [first, tg.rand(2).tolist()] == expected
    x = tg.kept["x"]
    y = (x * 2).sum()
    y.backward()
    assert x.grad.tolist() == [2, 2]
    assert (tg.ones(2, 2) @ tg.ones(2, 2)).dtype is tg.float32


def test_a_failure_that_was_not_seen_keeps_the_session_attached(tg: Any) -> None:
    x = tg.ones(2)
    tg.ones(2)[tg.tensor([5])]
    with pytest.raises(telegrad.errors.IndexOutOfRangeError):
        tg.detach(x=x)
    assert x.tolist() == [1, 1]
    left = tg.detach(x=x)
    assert left.kept == ("x",)
    telegrad.connect(left.url, session=left.session, key=left.key)


def test_a_client_that_died_with_work_under_way_is_replaced(server: ServerProcess, start_program: Start) -> None:
    program = start_program(
        "import sys; import telegrad as tg\n"
        "c = tg.connect(sys.argv[1], lease=60)\n"
        "x = tg.zeros(1)\n"
        "tg.kept['x'] = x\n"
        "print(c.id, c.key, flush=True)\n"
        "while True:\n"
        "    x += 1\n"
        "    y = tg.ones(300, 300) @ tg.ones(300, 300)\n",
        server.url,
    )
    assert program.stdout is not None
    session, key = program.stdout.readline().split()
    wait_until(lambda: server.operations > 1000, "it works")
    program.kill()
    program.wait()

    def attached() -> Any:
        try:
            return telegrad.connect(server.url, session=session, key=key)
        except SessionInUseError:
            return None

    wait_until(attached, "the server noticed that the client is gone")
    count = telegrad.kept["x"].item()
    assert count == int(count) > 0
    assert (telegrad.ones(2) + 1).tolist() == [2, 2]
    telegrad.disconnect()


def test_sessions_that_end_with_the_process_are_not_left() -> None:
    telegrad.connect(devices="cpu")
    try:
        x = telegrad.ones(2)
        with pytest.raises(NotSupportedError, match=r"private server.*start a server that stays"):
            telegrad.detach(x=x)
        assert x.tolist() == [1, 1] and len(telegrad.kept) == 0
        assert telegrad.detach(x).tolist() == [1, 1]
    finally:
        telegrad.disconnect()
    with pytest.raises(SessionLostError, match="no session is open"):
        telegrad.detach()


def test_what_cannot_be_kept_is_refused_at_the_call(tg: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"keep: .* is a Linear.*keep its state_dict"):
        tg.detach(model=tg.nn.Linear(2, 2))
    with pytest.raises(ArgumentTypeError, match="not both"):
        tg.detach(tg.ones(1), x=tg.ones(1))
    with pytest.raises(KeyError):
        del tg.kept["nothing"]
    assert tg.ones(1).item() == 1


def test_a_failure_that_a_dead_client_never_saw_does_not_stop_the_next(
    server: ServerProcess, start_program: Start
) -> None:
    program = start_program(
        "import os, sys; import telegrad as tg\n"
        "c = tg.connect(sys.argv[1], lease=60)\n"
        "tg.kept['x'] = tg.ones(2)\n"
        "print(c.id, c.key, flush=True)\n"
        "tg.ones(2)[tg.tensor([5])]\n"
        "c.session.flush()\n"
        "sys.stdin.readline()\n"
        "os._exit(1)\n",
        server.url,
    )
    assert program.stdout is not None
    session, key = program.stdout.readline().split()
    program.communicate("go\n")
    telegrad.connect(server.url, session=session, key=key, takeover=True)
    assert (telegrad.kept["x"] + 1).tolist() == [2, 2]
    telegrad.disconnect()


def test_a_lost_connection_does_not_matter_to_what_was_taken_over(server: ServerProcess) -> None:
    with FaultProxy(server.port) as proxy:
        first = telegrad.connect(f"http://127.0.0.1:{proxy.port}", lease=60)
        telegrad.kept["x"] = telegrad.zeros(1000)
        left = telegrad.detach()
        second = _come_back(server, left)
        x = telegrad.kept["x"]
        for _ in range(5):
            proxy.cut_now()
            x += 1
            assert x[0].item() * 1000 == x.sum().item()
        assert x[0].item() == 5
        assert first.id == second.id
        second.disconnect()
