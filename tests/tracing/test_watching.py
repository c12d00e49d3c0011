"""A session's trace over HTTP, and the page that draws it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import telegrad
from telegrad._session.sending.watching import watched
from tests.memory.test_pages import BROWSER, FLAGS
from tests.session.server import HttpSession, ServerProcess

from .test_traces import read_strictly


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.fixture
def session(server: ServerProcess) -> Iterator[HttpSession]:
    one = HttpSession(server)
    yield one
    one.close()


def test_a_watched_session_tells_its_latest_events(session: HttpSession) -> None:
    assert "not watched" in session.call("GET", "/trace", 422).json()["detail"]
    session.call("PUT", "/trace", 204)
    session.call("PUT", "/trace", 204)
    for _ in range(30):
        session.ops({"op": "ones", "args": [[8]], "out": 1}, {"op": "add", "args": [{"tensor": 1}, 1], "out": 2})
    by_category = read_strictly(session.call("GET", "/trace").json())
    assert [event["name"] for event in by_category["cpu_op"]].count("aten::add") == 30
    latest = session.call("GET", "/trace", params={"last": 5}).json()
    assert len([event for event in latest["traceEvents"] if event["ph"] == "X"]) <= 5
    for wrong in (0, 1 << 20, "all"):
        session.call("GET", "/trace", 422, params={"last": wrong})
    assert session.server.http.get(f"/v1/sessions/{session.id}/trace").status_code == 403
    session.call("DELETE", "/trace", status=204)
    session.call("DELETE", "/trace", status=204)
    session.call("GET", "/trace", 422)


def test_a_program_that_profiles_itself_is_left_alone(server: ServerProcess) -> None:
    with telegrad.connect(server.url) as connection:
        hello = connection.session.transport.hello
        headers = {"Telegrad-Session-Key": hello.key}
        path = f"/v1/sessions/{hello.session}/trace"
        assert server.http.put(path, headers=headers).status_code == 204
        x = telegrad.ones(4)
        with telegrad.profiler.profile() as profile:
            x.add_(1).sum().item()
            assert server.http.put(path, headers=headers).status_code == 204
            assert server.http.delete(path, headers=headers).status_code == 204
            assert server.http.get(path, headers=headers).status_code == 200
            x.mul_(1)
        names = {event.name for event in profile.events()}
        assert {"aten::add_", "aten::mul_"} <= names
        assert telegrad.profiler.page() == f"{server.url}/profile#session={hello.session}&key={hello.key}"


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_draws_the_trace(session: HttpSession, tmp_path: Path) -> None:
    session.call("PUT", "/trace", 204)
    for _ in range(20):
        session.ops({"op": "ones", "args": [[8]], "out": 1}, {"op": "exp", "args": [{"tensor": 1}], "out": 2})
    address = f"{session.server.url}/profile#session={session.id}&key={session.key}"
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", address]
    page = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=120, check=True)
    assert "aten::exp" in page.stdout and "worker busy" in page.stdout
    assert 'id="login" hidden' in page.stdout and session.key not in page.stdout
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)


def test_labels_of_a_program_are_told_while_its_session_is_watched(server: ServerProcess) -> None:
    with telegrad.connect(server.url) as connection:
        hello = connection.session.transport.hello
        headers = {"Telegrad-Session-Key": hello.key}
        path = f"/v1/sessions/{hello.session}/trace"
        x = telegrad.ones(4)

        def step(name: str) -> None:
            with telegrad.profiler.record_function(name):
                x.add_(1).sum().item()

        step("before")
        assert not watched
        server.http.put(path, headers=headers).raise_for_status()
        x.sum().item()  # which tells the client
        step("meanwhile")
        x.sum().item()  # before which the end of the label is told
        by_category = read_strictly(server.http.get(path, headers=headers).json())
        assert [event["name"] for event in by_category["user_annotation"]] == ["meanwhile"]
        label = by_category["user_annotation"][0]
        inner = [event for event in by_category["cpu_op"] if label["ts"] <= event["ts"] <= label["ts"] + label["dur"]]
        assert {"aten::add_", "aten::sum"} <= {event["name"] for event in inner}
        with telegrad.profiler.profile() as profile:
            step("profiled")
        assert "profiled" in {event.name for event in profile.events()}
        server.http.put(path, headers=headers).raise_for_status()
        server.http.delete(path, headers=headers).raise_for_status()
        x.sum().item()
        assert not watched
        step("after")
        server.http.put(path, headers=headers).raise_for_status()
        x.sum().item()
        assert watched
    assert not watched, "of sessions that have ended nothing is kept"
