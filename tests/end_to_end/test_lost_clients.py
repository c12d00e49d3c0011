"""What a client that dies without a word held is gone within its lease, on every kind of device."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from tests.gpus import ALL_DEVICES
from tests.transport.waiting import wait_until

from .server_process import ServerProcess

LEASE_SECONDS = 3.0

HOLDER = """
import sys
import telegrad as tg
tg.connect(sys.argv[1])
kept = [tg.randn(1000, 1000, requires_grad=True) for _ in range(20)]
loss = sum((x * x).relu().sum() for x in kept[1:]) + (kept[0] @ kept[0]).relu().sum()
raw = tg.cuda.caching_allocator_alloc(5 << 20)
pool = tg.cuda.MemPool()
with tg.cuda.use_mem_pool(pool):
    kept.append(tg.zeros(1 << 20))
    loss.backward()
    print(tg.cuda.memory_allocated(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("device", ALL_DEVICES)
def test_no_byte_is_left(device: str, start_program: Callable[..., subprocess.Popen[str]]) -> None:
    with ServerProcess(TELEGRAD_DEVICES=device, TELEGRAD_LEASE_SECONDS=str(LEASE_SECONDS)) as server:
        client = start_program(HOLDER, server.url)
        assert client.stdout is not None
        held = int(client.stdout.readline() or 0)
        assert held > 160_000_000 and server.held_on(device) >= held
        client.kill()
        began = time.monotonic()
        wait_until(lambda: not server.held_on(device), "the memory of the killed client was freed")
        assert time.monotonic() - began < 2 * LEASE_SECONDS
        assert server.sessions == 0
