"""``python -m tests.soak.client URL SEED``: a client that lives many lives, one session each, until its input ends.

For each life it writes a line: what it did, and the class of the error that ended it where one did.
"""

from __future__ import annotations

import random
import select
import sys
from collections.abc import Callable
from typing import Any

import httpx

import telegrad as tg
from telegrad.errors import TelegradError

STEPS = 20


def train(rng: random.Random) -> None:
    """Train a small network, of a size that others may not have used."""
    width = rng.randrange(8, 96)
    model = tg.nn.Sequential(tg.nn.Linear(16, width), tg.nn.GELU(), tg.nn.Linear(width, 4))
    optimizer = rng.choice((tg.optim.AdamW, tg.optim.SGD))(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        x, y = tg.randn(rng.randrange(1, 33), 16), tg.tensor(rng.randrange(4))
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y.expand(x.shape[0]))
        loss.backward()
        optimizer.step()
    loss.item()


def use_much(rng: random.Random) -> None:
    """Send and receive some megabytes, and keep them until the end."""
    x = tg.randn(rng.randrange(1, 5) << 18)
    sent = tg.tensor((x + 1).numpy())
    sent.sort()[0].sum().item()


def fail(rng: random.Random) -> None:
    """Make mistakes that only the server finds, and go on."""
    for _ in range(rng.randrange(1, 20)):
        try:
            tg.arange(5)[tg.tensor([rng.randrange(5, 100)])].tolist()
        except IndexError:
            tg.ones(3).sum().item()
    tg.linalg.inv(tg.zeros(3, 3)).tolist()


def bring_new_shapes(rng: random.Random) -> None:
    """Use shapes that most likely nobody has used before: the worker's table of plans is full soon, and stays so."""
    x = tg.ones(1).expand(1 << 40)
    for _ in range(500):
        y = x.narrow(0, rng.randrange(1 << 20), rng.randrange(1, 1 << 10)) + 1
    y.sum().item()


def exceed(rng: random.Random) -> None:
    """Ask for more memory than the quota."""
    kept = [tg.ones(1 << 22) for _ in range(64)]
    kept[-1].sum().item()


def over_http(url: str) -> None:
    """Open a session without the client, and leave it to its lease."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        hello = http.post("/v1/sessions", json={}).json()
        if "session" in hello:
            key = {"Telegrad-Session-Key": hello["key"]}
            steps: list[dict[str, Any]] = [{"op": "ones", "args": [[100, 100]], "out": 1}]
            http.post(f"/v1/sessions/{hello['session']}/ops", json=steps, headers=key)


LIVES: list[Callable[[random.Random], None]] = [train, train, use_much, fail, bring_new_shapes, exceed]


def live(url: str, rng: random.Random) -> str:
    """Live once; return what was done."""
    if rng.random() < 0.1:
        over_http(url)
        return "over_http"
    life = rng.choice(LIVES)
    try:
        connection = tg.connect(url, own_worker=rng.random() < 0.03)
        try:
            life(rng)
        finally:
            connection.disconnect()
    except TelegradError as error:
        return f"{life.__name__} {type(error).__name__}"
    return life.__name__


def main() -> None:
    """Live until the input ends."""
    url, rng = sys.argv[1], random.Random(sys.argv[2])
    while not select.select([sys.stdin], [], [], 0)[0]:
        print(live(url, rng), flush=True)


if __name__ == "__main__":
    main()
