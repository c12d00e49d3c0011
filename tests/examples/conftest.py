"""Servers that the programs of a module share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .running import environment


@contextmanager
def server(*options: str, **variables: str) -> Iterator[str]:
    """Run a server, and give its address."""
    command = [sys.executable, "-m", "server", "--host", "127.0.0.1", "--port", "0", "--announce", *options]
    with subprocess.Popen(command, env=environment() | variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server on all devices that there are."""
    with server() as address:
        yield address


@pytest.fixture(scope="module")
def permissive_url() -> Iterator[str]:
    """The address of a server on all devices, which runs kernels and C++ of its sessions."""
    with server(TELEGRAD_ALLOW_KERNELS="1", TELEGRAD_ALLOW_HOST_CODE="shared") as address:
        yield address


@pytest.fixture(scope="module")
def cpu_url() -> Iterator[str]:
    """The address of a server without GPUs, which runs C++ of its sessions."""
    with server("--devices", "cpu", TELEGRAD_ALLOW_HOST_CODE="shared") as address:
        yield address
