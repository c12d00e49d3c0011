"""Random programs of calls, many of which raise, and what they see of their results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from telegrad._ops import functions
from telegrad._session.catching import prompt_errors
from telegrad._session.session import ClientSession
from telegrad_protocol import wire

from .creations import made
from .recording_host import Recorder, RecordingHost, of_lines
from .usual_calls import EACH, own_class, usual_calls

PROGRAMS = 40
NUMBERS = (2, 0.5, 0.0, -0.0, True, 1 + 2j, -3, float("nan"), 1 << 40)
SIZES = ((6,), [3, 2], (2, -1), (2, 3), (1, 2, 3), (-1,), (5,))


class Pool:
    """Tensors that a random program takes operands from, and what it has seen of them."""

    def __init__(self, tg: Any, rng: random.Random) -> None:
        self.tg, self.rng = tg, rng
        self.seen: list[Any] = []
        self.tensors = [
            tg.ones(2, 3), tg.ones(3), tg.ones(2, 3, requires_grad=True), tg.nn.Parameter(tg.ones(3)), tg.arange(6),
            tg.tensor(2.0), tg.ones(2, 3, dtype=tg.bool), tg.ones(3, 2, dtype=tg.float64), tg.tensor([1, 0]),
            tg.ones(2, 3).as_subclass(own_class(tg)), tg.ones(2, 3, device="meta"),
        ]  # fmt: skip
        self.fixed = len(self.tensors)

    def one(self) -> Any:
        return self.rng.choice(self.tensors)

    def keep(self, result: Any) -> None:
        """Note a result, and let it take the place of an earlier one, which dies, or die at once."""
        for one in result if isinstance(result, (tuple, list)) else [result]:
            self.seen.append(_described(one))
            if isinstance(one, self.tg.Tensor) and self.rng.random() < 0.6:
                self.tensors.append(one)
        while len(self.tensors) > self.fixed + 20:
            del self.tensors[self.rng.randrange(self.fixed, len(self.tensors))]


def _described(result: Any) -> Any:
    """All that calls have written into a handle, with nodes and aliases by what they hold."""
    if not hasattr(result, "_meta"):
        return type(result), result
    node, aliases, base = result._node, result._aliases, result._base
    edges = [] if node is None else [getattr(parent, "name", "leaf") for parent in node.parents]
    is_on_server = type(result._session) is ClientSession
    return (
        type(result), result._id if is_on_server else 0, result._meta, result._requires_grad, result._seen, edges,
        result._is_inference,
        getattr(node, "name", None), getattr(node, "extras", None) is None, None if base is None else base._meta,
        None if aliases is None else aliases.version, sorted(vars(result)), result._grad is None,
    )  # fmt: skip


def _step(tg: Any, pool: Pool, rng: random.Random) -> Any:
    """One call of a random program; many of them raise."""
    x, y, number, dim = pool.one(), pool.one(), rng.choice(NUMBERS), rng.choice((0, 1, -1, 2))
    return rng.choice((
        lambda: x + y, lambda: x * number, lambda: number - x, lambda: x / y, lambda: x == y, lambda: -x,
        lambda: tg.add(x, y, alpha=number), lambda: x.sin(), lambda: tg.softmax(x, dim), lambda: x.sum(),
        lambda: x.sum(dim=dim, keepdim=True), lambda: x.transpose(0, dim), lambda: x.t(), lambda: x @ y,
        lambda: x.view(rng.choice(SIZES)), lambda: x.view(*rng.choice(SIZES)), lambda: x[0], lambda: x[..., 1:],
        lambda: tg.where(x > 0, y, number), lambda: x.add_(y), lambda: x.mul_(number), lambda: x.detach(),
        lambda: x.copy_(y), lambda: x.zero_(), lambda: x.clamp_(0, 1), lambda: tg.add(x, y, out=pool.one()),
        lambda: x.index_copy_(0, y, x), lambda: x.fill_(number), lambda: x.masked_fill_(x > 1, 2),
        lambda: tg.cat([x, y]), lambda: tg.stack((x, x, y), dim), lambda: x.max(0), lambda: x.split(1),
        lambda: tg.nn.functional.layer_norm(x, (3,), y), lambda: tg.nn.functional.linear(x, y), lambda: x.clone(),
        lambda: tg.nn.functional.embedding(x, y), lambda: x.index_select(0, y), lambda: tg.zeros(2, 3),
        lambda: tg.full((2,), number), lambda: x.to(tg.float64), lambda: x.requires_grad_(), lambda: x.expand(2, 2, 3),
        lambda: tg.einsum("ij,ij->i", x, y), lambda: x.clamp(0, number), lambda: tg.addmm(x, y, x), lambda: x.add(),
        lambda: tg.stack([one[0] for one in (x, y, pool.one())]), lambda: tg.cat([pool.one() for _ in range(12)], dim),
        lambda: EACH["add_"]([x, y], number), lambda: EACH["mul_"]((x, y), [y, x]), lambda: x[y.to(tg.int64)],
        lambda: EACH["mul"]([x, y], number), lambda: x.view(y.shape), lambda: x[:, None, y.to(tg.int64)], lambda: x[-1],
        lambda: tg.stack([x, None]), lambda: tg.cat(()), lambda: EACH["zero_"]([x, x.detach()]),
        lambda: x.sum().backward(), lambda: tg.lerp(x, y, number), lambda: x.view({}), lambda: x.roll([1, dim]),
        lambda: made(tg, rng, number), lambda: made(tg, rng, number),
    ))()  # fmt: skip


def _program(tg: Any, pool: Pool) -> None:
    """Some calls under the same modes, most of which have results."""
    rng = pool.rng
    casts = tg.autocast("cpu", dtype=tg.bfloat16, enabled=rng.random() < 0.1)
    with tg.set_grad_enabled(rng.random() < 0.8), tg.inference_mode(rng.random() < 0.1), casts:
        for _ in range(20):
            try:
                pool.keep(_step(tg, pool, rng))
            except Exception as error:
                pool.seen.append((type(error), str(error)))


def run_program(host: RecordingHost, call: Callable[..., Any], seed: int) -> tuple[list[bytes], list[Any]]:
    """Run a random program with these calls; returns what it has sent, and what it has seen."""
    import telegrad as tg

    host.session = Recorder()
    with tg.connect(in_process=host) as connection, pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(functions), "call", call)
        patch.setattr(prompt_errors, "check_where_caught", lambda check, how: None)  # its patience is the process's
        pool = Pool(tg, random.Random(seed))
        for usual in [*usual_calls(tg).values()] * 3:
            pool.keep(usual())
        for _ in range(PROGRAMS):
            _program(tg, pool)
        seen = [*pool.seen, connection.session.operations]
        del pool
    return [wire.encode_batch([one]) for one in of_lines(host.session.sent)], seen
