"""What operators look at over HTTP: the page, the viewer's file, the history; without internet and without secrets."""

from __future__ import annotations

import base64
import hashlib
import pickle
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.gateway.auth import OPEN_PATHS
from tests.session.server import HttpSession, ServerProcess

STATIC = sorted(path for path in OPEN_PATHS if path.startswith("/static/"))
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=6000",
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(TOKEN="correct-horse-battery") as process:
        process.http.headers["Authorization"] = "Bearer correct-horse-battery"
        yield process


@pytest.fixture
def sessions(server: ServerProcess) -> Iterator[list[HttpSession]]:
    opened = [HttpSession(server) for _ in range(2)]
    for session, size in zip(opened, (1000, 100_000)):
        session.call("POST", "/ops", json={"op": "zeros", "args": [[size]], "out": 1})
    yield opened
    for session in opened:
        server.http.delete(f"/v1/sessions/{session.id}", headers={"Telegrad-Session-Key": session.key})


def owners(snapshot: dict[str, Any]) -> set[Any]:
    return {b["owner"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}


@pytest.mark.parametrize("path", ["/", "/memory", "/profile", "/docs"])
def test_a_page_loads_nothing_from_elsewhere_and_holds_no_data(server: ServerProcess, path: str) -> None:
    page = server.http.get(path, headers={"Authorization": ""})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r"<(?:link|script|img)[^>]*(?:src|href)=\"([^\"]+)\"", page.text)
    assert {each.split("?")[0].lstrip("/") for each in loaded} <= {
        "data:,", "memory_snapshot", *(each.lstrip("/") for each in STATIC),
    }  # fmt: skip
    assert not re.findall(r"https?://(?!this-address)", page.text)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    for script in re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    for link in re.findall(r"<a href=\"([^\"]+)\"", page.text):
        assert server.http.get("/" + link).status_code == 200, link


def test_every_answer_tells_browsers_to_run_and_frame_nothing(server: ServerProcess) -> None:
    for path in ("/healthz", "/nowhere", "/memory_stats", "/metrics", "/openapi.json", "/static/memory.css"):
        headers = server.http.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", STATIC)
def test_what_pages_load_is_here(server: ServerProcess, path: str) -> None:
    answer = server.http.get(path, headers={"Authorization": ""})
    assert answer.status_code == 200 and len(answer.content) > 1000
    assert server.http.get("/static/../auth.py").status_code in (404, 422)
    assert server.http.get("/static/nothing.js").status_code == 404


def test_the_operator_sees_all_and_a_session_its_own(server: ServerProcess, sessions: list[HttpSession]) -> None:
    snapshot = server.http.get("/memory_snapshot", params={"traces": False}).json()
    assert (snapshot["devices"], snapshot["device_traces"]) == (["cpu"], [[]])
    assert {snapshot["sessions"][str(owner)] for owner in owners(snapshot)} == {each.id for each in sessions}
    own = sessions[0].call("GET", "/memory_snapshot").json()
    assert None in owners(own) and len(owners(own)) == 2 and "sessions" not in own
    stats = sessions[0].call("GET", "/memory_stats").json()["cpu"]
    assert stats["allocated_bytes.all.current"] == 4096
    assert "Allocated memory      |   4096 B" in sessions[0].call("GET", "/memory_summary").text
    for path in ("memory_snapshot", "memory_stats", "memory_summary"):
        refused = server.http.get(f"/v1/sessions/{sessions[0].id}/{path}", headers={"Telegrad-Session-Key": "x" * 20})
        assert refused.status_code == 403


def test_the_operators_history_reaches_pytorchs_viewer(server: ServerProcess, sessions: list[HttpSession]) -> None:
    import torch.cuda._memory_viz as viz

    assert server.http.post("/memory_history", json={"enabled": "all", "max_entries": 100}).status_code == 204
    sessions[0].call("POST", "/ops", json={"op": "ones", "args": [[5000]], "out": 2})
    answer = server.http.get("/memory_snapshot", params={"format": "pickle"})
    assert "snapshot.pickle" in answer.headers["content-disposition"]
    snapshot = pickle.loads(answer.content)
    assert [entry["action"] for entry in snapshot["device_traces"][0]] == ["alloc", "snapshot"]
    assert snapshot["records_lines"] is True
    assert viz.trace_plot(snapshot).lstrip().startswith("<!DOCTYPE html>")
    assert server.http.post("/memory_history", json={"enabled": None}).status_code == 204
    assert server.http.get("/memory_snapshot").json()["device_traces"] == [[]]
    assert server.http.post("/memory_history", json={"enabled": "loud"}).status_code == 422


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_draws_the_page(server: ServerProcess, sessions: list[HttpSession], tmp_path: Path) -> None:
    """Through a copy of the server without a token, because a headless browser cannot type one."""
    with ServerProcess() as open_server:
        one = HttpSession(open_server)
        one.call("POST", "/ops", json={"op": "zeros", "args": [[100_000]], "out": 1})
        command = [
            BROWSER,
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            f"{open_server.url}/memory",
        ]
        page = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=120, check=True)
        open_server.http.delete(f"/v1/sessions/{one.id}", headers={"Telegrad-Session-Key": one.key})
    assert one.id in page.stdout and "390.6 KiB" in page.stdout
    assert "telegrad memory summary, device cpu" in page.stdout
    assert 'id="login" hidden' in page.stdout
