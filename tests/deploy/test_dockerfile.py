"""The image as far as its Dockerfile tells; the replay of its steps is marked slow and wants root and debootstrap."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy.lock import VARIANTS
from deploy.replay import DOCKERFILE, REPOSITORY, exec_form, health_command, parse

from ..end_to_end.server_process import ServerProcess
from ..support.certificates import self_signed

STEPS = parse(DOCKERFILE.read_text())
CACHE = "/home/telegrad/.cache"


def last(keyword: str) -> str:
    return next(step.text for step in reversed(STEPS) if step.keyword == keyword)


def test_the_server_does_not_run_as_root():
    assert int(last("USER")) > 0


def test_the_entry_point_is_a_console_script_in_exec_form():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert exec_form(last("ENTRYPOINT"))[0] in project["scripts"]


def test_the_health_check_asks_healthz_with_a_certificate_and_without(tmp_path):
    python, flag, program = health_command(last("HEALTHCHECK"))
    assert (python, flag) == ("python", "-c")
    certificate, key = self_signed(tmp_path, "own")

    def passes(port: int, **variables: str) -> bool:
        environ = os.environ | variables | {"TELEGRAD_PORT": str(port)}
        return subprocess.run([sys.executable, "-c", program], env=environ, stderr=subprocess.DEVNULL).returncode == 0

    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as plain:
        serving = threading.Thread(target=plain.serve_forever)
        serving.start()
        assert passes(plain.server_port)
        plain.shutdown()
        serving.join()
    assert not passes(plain.server_port)
    with ServerProcess(TELEGRAD_TLS_CERT=str(certificate), TELEGRAD_TLS_KEY=str(key)) as server:
        assert passes(server.port, TELEGRAD_TLS_CERT=str(certificate))
        assert not passes(server.port)


class Healthy(BaseHTTPRequestHandler):
    """Answers 200 at ``/healthz`` alone."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_shell_form_is_refused():
    with pytest.raises(SystemExit, match="exec form"):
        exec_form("telegrad-server --port 8000")


def test_every_copied_path_exists_and_passes_the_ignore_file():
    allowed = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().split()
    for step in STEPS:
        if step.keyword == "COPY" and not step.text.startswith("--from"):
            for source in step.text.split()[:-1]:
                assert (REPOSITORY / source).exists()
                assert f"!{source}" in allowed


def test_every_variant_is_installed_from_a_lock_file_with_hashes_alone():
    copied = " ".join(step.text for step in STEPS if step.keyword == "COPY")
    assert all(f"deploy/requirements-{variant}.lock" in copied for variant in VARIANTS)
    assert last("ARG") == "VARIANT=cuda"
    installs = [part for step in STEPS if step.keyword == "RUN" for part in step.text.split("&&") if "pip" in part]
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install


def test_the_base_image_is_one_by_its_digest():
    first, *stages = (step for step in STEPS if step.keyword in ("ARG", "FROM"))
    assert re.fullmatch(r"BASE=python:3\.\d+-slim@sha256:[0-9a-f]{64}", first.text)
    assert {stage.text.split()[0] for stage in stages if stage.keyword == "FROM"} == {"${BASE}"}


def test_what_is_cached_lies_where_volumes_are_mounted():
    folders = dict(step.text.split("=", 1) for step in STEPS if step.keyword == "ENV")
    assert folders["CUPY_CACHE_DIR"].startswith(CACHE) and folders["CUDA_CACHE_PATH"].startswith(CACHE)
    assert f"{last('WORKDIR')}/.cache" == CACHE


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a chroot needs root on Linux")
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
def test_its_steps_in_a_fresh_root_filesystem_give_a_healthy_server():
    faulthandler.cancel_dump_traceback_later()  # it builds an image, which takes longer than any other test
    replay = [sys.executable, str(DOCKERFILE.parent / "replay.py"), "--arg", "VARIANT=cpu"]
    settings = ["--env", f"TELEGRAD_PORT={free_port()}", "--env", "TELEGRAD_TOKEN=a-token-to-replay-with"]
    subprocess.run([*replay, *settings], check=True)
