"""Memory as the sessions of a host see it: their own bytes, their own lines, and nothing of their neighbours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from server.app import create_app
from server.settings import Settings
from telegrad_protocol.errors import ConfigurationError, InternalError


@pytest.fixture
def two(host: Any) -> Iterator[tuple[Any, Any]]:
    """Two connections to one host."""
    import telegrad

    with telegrad.connect(in_process=host) as one, telegrad.connect(in_process=host) as other:
        yield one, other


def session_of(connection: Any) -> Any:
    return connection.session.transport._session


def test_numbers_of_sessions_are_never_used_again(host: Any) -> None:
    import telegrad

    numbers = []
    for _ in range(3):
        with telegrad.connect(in_process=host) as connection:
            numbers.append(session_of(connection).number)
    assert len(set(numbers)) == 3
    for number in numbers:
        with pytest.raises(InternalError, match=f"session number {number} was used before"):
            host.open(number, {})


def test_options_are_refused_when_the_server_starts_by_name() -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAD_ALLOC_CONF: unknown option 'colour'"):
        create_app(Settings(devices=("cpu",), alloc_conf="colour:red"))


def test_options_reach_the_engine() -> None:
    script = (
        "from server.host import Host\n"
        "config = Host(['cpu']).backend('cpu').allocator.config\n"
        "print(config.max_split_size, config.garbage_collection_threshold)\n"
    )
    environment = {**os.environ, "TELEGRAD_ALLOC_CONF": "max_split_size_mb:64, garbage_collection_threshold:0.5"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(64 << 20), "0.5"]
