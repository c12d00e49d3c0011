"""``python -m tests.hostile.attacks URL NAME``: attack a server until the input ends; then say what it answered.

The first line that it writes says that the attack has begun. The last one has, as JSON, how often each class of error
came, by its name, and ``done`` for what was carried out.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import telegrad as tg
from telegrad.errors import TelegradError
from tests.support import plain_http

F = tg.nn.functional
NICENESS = 10
"""An attacker has a machine of its own, elsewhere: here it takes no processor from the server and the victim."""


def nested_gradients() -> None:
    """Make 444 bytes grow exponentially."""
    x = tg.ones(1, requires_grad=True)
    y = x.tanh() * x.exp() * x.sigmoid()
    for _ in range(14):
        (y,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    y.item()


def huge_windows() -> None:
    """Pool over windows as long as half the input."""
    F.avg_pool1d(tg.ones(1).expand(1, 1, 8_000_000), 4_000_000, stride=1).sum().item()


def huge_convolution() -> None:
    """Convolve four million elements by a million."""
    F.conv1d(tg.ones(1).expand(1, 1, 4_000_000), tg.ones(1).expand(1, 1, 1_000_000)).sum().item()


def long_attention() -> None:
    """Attend over 200,000 positions."""
    F.scaled_dot_product_attention(*[tg.ones(1).expand(1, 1, 200_000, 8)] * 3).sum().item()


def products() -> None:
    """Queue 64 products of matrices, each of which takes many slices."""
    a = tg.ones(1000, 1000)
    tg.stack([(a @ a)[0, 0] for _ in range(64)]).sum().item()


def new_shapes() -> None:
    """Use shapes that were never used before, as fast as they come."""
    start = int.from_bytes(os.urandom(3), "little")
    for number in range(2000):
        x = tg.ones(1).expand(start + number)
        (x.narrow(0, 0, 3) + 1).sum()
    tg.ones(1).item()


def endless_failures() -> None:
    """Fail at every instruction."""
    for _ in range(200):
        with contextlib.suppress(IndexError):
            tg.arange(5)[tg.tensor([99])].tolist()


def much_data() -> None:
    """Send and receive megabytes all the time."""
    (tg.ones(4_000_000) + 1).numpy()


ATTACKS: dict[str, Callable[[], None]] = {
    attack.__name__: attack
    for attack in (
        nested_gradients, huge_windows, huge_convolution, long_attention, products, new_shapes, endless_failures,
        much_data,
    )
}  # fmt: skip
"""What clients do."""


def _send(url: str, *pieces: bytes) -> None:
    """Send pieces over a connection of its own, until the server closes it."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port), timeout=20) as sock:
        for piece in pieces:
            sock.sendall(piece)
        while sock.recv(1 << 16):
            pass


def many_headers(url: str) -> None:
    """Send 77 MB of header lines."""
    _send(url, b"GET / HTTP/1.1\r\n", *[b"X-Filler: " + b"x" * 65_000 + b"\r\n"] * 1200)


def pipelined(url: str) -> None:
    """Send 400,000 requests at once."""
    _send(url, *[b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000] * 400)


def half_open(url: str) -> None:
    """Open 500 connections that ask for nothing."""
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=20)).sendall(b"GET")


def _post(url: str, body: bytes) -> None:
    answer = plain_http.post(url, content=body, headers={"Content-Type": "application/json"}, timeout=60)
    if answer.status_code >= 400:
        raise AnswerError(answer.json()["code"])


def many_lists(url: str) -> None:
    """Send 8 MB of empty lists as JSON."""
    _post(f"{url}/v1/sessions", b"[" + b"[]," * 2_700_000 + b"[]]")


def deep_lists(url: str) -> None:
    """Send lists in lists in lists."""
    _post(f"{url}/v1/sessions", b"[" * 100_000 + b"]" * 100_000)


class AnswerError(Exception):
    """An answer over HTTP that is an error, by its code."""


DOOR: dict[str, Callable[[str], None]] = {
    attack.__name__: attack for attack in (many_headers, pipelined, half_open, many_lists, deep_lists)
}
"""What anybody can send without a session."""


def main() -> None:
    """Attack."""
    os.nice(NICENESS)
    url, name = sys.argv[1:]
    answers: Counter[str] = Counter()
    connect: Any = contextlib.nullcontext if name in DOOR else lambda: tg.connect(url)
    with connect():
        print("attacking", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                DOOR[name](url) if name in DOOR else ATTACKS[name]()
                answers["done"] += 1
            except TelegradError as error:
                answers[type(error).__name__] += 1
            except AnswerError as error:
                answers[str(error)] += 1
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
