"""The image as far as its Dockerfile tells; the replay of its steps is marked slow and wants root and debootstrap."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tomllib

import pytest

from deploy.replay import DOCKERFILE, REPOSITORY, exec_form, health_command, parse

STEPS = parse(DOCKERFILE.read_text())


def last(keyword: str) -> str:
    return next(step.text for step in reversed(STEPS) if step.keyword == keyword)


def test_the_server_does_not_run_as_root():
    assert int(last("USER")) > 0


def test_the_entry_point_is_a_console_script_in_exec_form():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert exec_form(last("ENTRYPOINT"))[0] in project["scripts"]


def test_the_health_check_asks_healthz_and_is_valid_python():
    python, flag, program = health_command(last("HEALTHCHECK"))
    assert (python, flag) == ("python", "-c")
    assert "/healthz" in program
    compile(program, "healthcheck", "exec")


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


def test_the_default_extra_is_one_of_the_project():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = last("ARG").removeprefix("EXTRAS=").strip("[]").split(",")
    assert extras == ["cuda", "profiling"] and set(extras) <= project["optional-dependencies"].keys()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a chroot needs root on Linux")
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
def test_its_steps_in_a_fresh_root_filesystem_give_a_healthy_server():
    replay = [sys.executable, str(DOCKERFILE.parent / "replay.py"), "--arg", "EXTRAS="]
    settings = ["--env", f"TELEGRAD_PORT={free_port()}", "--env", "TELEGRAD_TOKEN=a-token-to-replay-with"]
    subprocess.run([*replay, *settings], check=True)
