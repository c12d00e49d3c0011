"""A real server, gateway and worker, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.end_to_end.server_process import PATHS
from tests.support import plain_http

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0


class ServerProcess:
    """``python -m server`` on a free port; a context manager, after which no process of it is left."""

    def __init__(self, devices: str = "cpu", **variables: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TELEGRAD_")}
        settings = {f"TELEGRAD_{name}": value for name, value in variables.items()}
        read, self._parent = os.pipe()
        command = [sys.executable, "-m", "server", "--port", "0", "--devices", devices, "--announce"]
        self.process = subprocess.Popen(
            [*command, "--parent-fd", str(read)], cwd=ROOT, env=environ | {"PYTHONPATH": PATHS} | settings,
            pass_fds=[read], text=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        os.close(read)
        assert self.process.stdout is not None
        announced = self.process.stdout.readline()
        if not announced:
            self._end()
            raise RuntimeError(f"the server did not start, and ended with {self.process.returncode}")
        self.url = json.loads(announced)["url"]
        self.workers = psutil.Process(self.process.pid).children(recursive=True)
        self.http = plain_http.Client(base_url=self.url, timeout=DEADLINE)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self._end()
        assert self.process.returncode == 0
        assert psutil.wait_procs(self.workers, timeout=DEADLINE)[1] == [], "a worker survived its gateway"

    def _end(self) -> None:
        os.close(self._parent)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(DEADLINE)

    def held(self, session: str | None = None) -> int:
        """Bytes in use on the device, by all or by one session."""
        answer = self.http.get("/memory_stats", params={} if session is None else {"session": session})
        stats: int = answer.json()["cpu"]["allocated_bytes.all.current"]
        return stats


class HttpSession:
    """A session opened over HTTP; what is not answered with the expected status fails."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        opened = server.http.post("/v1/sessions", json={}).json()
        self.id, self.key = opened["session"], opened["key"]

    def call(self, method: str, path: str = "", status: int = 200, **rest: Any) -> httpx.Response:
        headers = {"Telegrad-Session-Key": self.key} | rest.pop("headers", {})
        answer = self.server.http.request(method, f"/v1/sessions/{self.id}{path}", headers=headers, **rest)
        assert answer.status_code == status, f"{answer.status_code} {answer.text[:2000]}"
        return answer

    def ops(self, *steps: dict[str, Any]) -> list[list[dict[str, Any]]]:
        results = self.call("POST", "/ops", json=list(steps)).json()["results"]
        return [result["tensors"] for result in results]

    def refused(self, status: int, *steps: dict[str, Any]) -> dict[str, Any]:
        problem: dict[str, Any] = self.call("POST", "/ops", status, json=list(steps)).json()
        return problem

    def close(self) -> None:
        self.call("DELETE", status=204)
