"""Well-formed frames, as the client sends them for short programs that together use most kinds of instructions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from telegrad_protocol import wire

from .mutation import Frame

Program = list[Frame]


def recorded_programs(host: Any) -> list[Program]:
    """The frames of each program, recorded on a session of ``host``."""
    import telegrad as tg

    programs = []
    for program in PROGRAMS:
        with tg.connect(in_process=host) as connection, _recorded(connection) as frames, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program(tg)
            tg.ones(1).tolist()  # so that nothing is left to be sent
        programs.append(frames)
    return programs


@contextmanager
def _recorded(connection: Any) -> Iterator[Program]:
    """Note the frames that a connection sends."""
    transport, frames = connection.session.transport, []
    send: Callable[[int, bytes], None] = transport._send

    def noting(kind: int, body: bytes) -> None:
        frames.append((kind, bytes(body)))
        send(kind, body)

    transport._send = noting
    try:
        yield frames
    finally:
        del transport._send


def _train(tg: Any) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(6, 5), tg.nn.ReLU(), tg.nn.Linear(5, 3))
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = tg.randn(4, 6), tg.tensor([0, 1, 2, 1])
    for _ in range(3):
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        tg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


def _differentiate(tg: Any) -> None:
    x = tg.randn(3, 3, requires_grad=True)
    y = (x @ x).tanh().sum()
    (first,) = tg.autograd.grad(y, x, create_graph=True)
    first.pow(2).sum().backward()
    x.grad.tolist()
    z = (x * 2).exp()
    z.retain_grad()
    z.register_hook(lambda grad: grad * 2)
    z.sum().backward()
    x.requires_grad_(False)
    x.grad = None


def _views(tg: Any) -> None:
    x = tg.arange(24.0).reshape(2, 3, 4)
    parts = x.split(1, dim=1)
    y = x.transpose(0, 1)[1:, ::1, :2].contiguous().view(-1)
    x.as_strided((2, 2), (4, 1), 3).sum().item()
    tg.cat([part.expand(2, 3, 4) for part in parts], dim=0).unfold(2, 2, 1).numpy()
    y.nonzero().tolist()
    x[x > 3].tolist()


def _modes(tg: Any) -> None:
    x = tg.randn(4, 4, requires_grad=True)
    with tg.no_grad():
        x.add_(1)
    with tg.inference_mode():
        (x + 1).sum().item()
    with tg.autocast("cpu", dtype=tg.bfloat16):
        (x @ x).sum().backward()
    tg.manual_seed(3)
    tg.rand(3).tolist()
    tg.set_default_dtype(tg.float64)
    tg.ones(3).tolist()
    tg.set_default_dtype(tg.float32)
    state = tg.get_rng_state()
    tg.set_rng_state(state)


def _large_data(tg: Any) -> None:
    x = tg.tensor(np.arange(40_000, dtype=np.float32))
    (x + 1).numpy()
    tg.tensor(np.ones((3, 0), np.int64)).tolist()


def _layers(tg: Any) -> None:
    x = tg.randn(1, 3, 8, 8, requires_grad=True)
    layers = tg.nn.Sequential(
        tg.nn.Conv2d(3, 4, 3, padding=1), tg.nn.BatchNorm2d(4), tg.nn.GELU(), tg.nn.MaxPool2d(2), tg.nn.Dropout(0.2)
    )
    layers(x).sum().backward()
    q = tg.randn(1, 2, 5, 4, requires_grad=True)
    tg.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    tg.nn.LSTM(4, 3)(tg.randn(5, 1, 4))[0].sum().item()
    tg.nn.Embedding(5, 3)(tg.tensor([1, 4])).sum().backward()


def _memory(tg: Any) -> None:
    tg.cuda.is_available()
    tg.ones(3).sort()[1].tolist()
    tg.linalg.solve(tg.eye(3), tg.ones(3)).tolist()
    tg.fft.fft(tg.ones(8)).abs().sum().item()


def _in_place(tg: Any) -> None:
    x = tg.zeros(3, 4)
    x[1] = 5
    x[:, 2].mul_(3).add_(tg.ones(3))
    tg.add(x, x, out=tg.empty(3, 4))
    x.index_add_(0, tg.tensor([0, 2]), tg.ones(2, 4))
    x.tolist()


def _compiled(tg: Any) -> None:
    model = tg.compile(tg.nn.Sequential(tg.nn.Linear(4, 3), tg.nn.Tanh()))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x + tg.tensor([1.0, 2.0, 3.0, 4.0])).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    for rows in (2, 2, 2, 3, 3, 2):
        step(tg.ones(rows, 4)).item()


def _functions_of_the_client(tg: Any) -> None:
    class Cube(tg.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3 * ctx.saved_tensors[0] ** 2

    x = tg.randn(3, 2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda leaf: None)
    y = Cube.apply(x.sin())
    y.register_hook(lambda grad: grad + 1)
    with tg.autograd.graph.saved_tensors_hooks(lambda saved: saved * 1, lambda packed: packed):
        (y.exp() * x).sum().backward(create_graph=True)
    tg.autograd.grad(x.grad.sum(), x, allow_unused=True)
    x.grad = tg.ones(3, 2)


def _leaves(tg: Any) -> None:
    layer = tg.nn.Linear(3, 2)
    loss = layer(tg.randn(4, 3)).sum()
    layer.weight.data = tg.randn(2, 3)
    loss.backward()
    layer.bias.data = layer.bias.data.double()
    layer.weight.grad.tolist()


def _transforms(tg: Any) -> None:
    def loss(w: Any, x: Any) -> Any:
        return (w @ x).tanh().sum()

    w, x = tg.randn(2, 3), tg.randn(4, 3)
    tg.func.vmap(tg.func.grad(loss), in_dims=(None, 0))(w, x).tolist()
    tg.func.jvp(lambda w: w.sin() * w, (w,), (w,))[1].tolist()
    tg.func.hessian(lambda x: x.pow(3).sum())(x[0]).tolist()
    layer = tg.nn.Sequential(tg.nn.Linear(3, 3), tg.nn.Dropout(0.5))
    tg.utils.checkpoint.checkpoint(layer, x.requires_grad_(), use_reentrant=True).sum().backward()


def _mistakes(tg: Any) -> None:
    for index in ([9], [-7]):
        try:
            tg.arange(5)[tg.tensor(index)].tolist()
        except IndexError:
            continue


@cache
def first_frames() -> Program:
    """Frames that make the tensors 1 to 5, which random calls name."""
    from telegrad_protocol.messages import SetRequiresGrad, Site, Upload
    from tests.session.driver import call

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    index = np.array([1, 0])
    instructions = [
        Site(1, "program.py", 3, "main"), Upload(1, 0, _code(x), (2, 3), "cpu", x.tobytes()), SetRequiresGrad(1, True),
        call("t", 2, 1), call("mul", 3, 1, 1), Upload(4, 0, _code(index), (2,), "cpu", index.tobytes()),
        call("ones", 5, [3, 3]),
    ]  # fmt: skip
    return [(wire.BATCH, wire.encode_batch(instructions))]


def _code(array: Any) -> int:
    from telegrad_protocol import dtypes

    return dtypes.BY_NAME[array.dtype.name].code


PROGRAMS = (
    _train, _differentiate, _views, _modes, _large_data, _layers, _memory, _in_place, _compiled,
    _functions_of_the_client, _leaves, _transforms, _mistakes,
)  # fmt: skip
"""Programs that together use most kinds of instructions."""
