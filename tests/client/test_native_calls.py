"""Calls in C and in Python do the same: what is sent, what results are, what is raised, and what is left behind."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from telegrad._native import SOURCE
from telegrad._native import binding as native
from telegrad._ops import call as python_call
from telegrad._ops import functions
from telegrad._ops.call_plan import cache_info
from telegrad._session.catching import prompt_errors
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT
from telegrad._tensor.autograd_graph import OperationNode
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.native import place

from ..support.compilers import needs_calls_in_c
from .creations import made

pytestmark = needs_calls_in_c
EACH = {name: functions.function(f"_foreach_{name}") for name in ("add_", "mul", "mul_", "neg", "zero_")}
PROGRAMS = 40
TURNS = 100


def test_it_is_compiled_where_there_is_a_compiler() -> None:
    library = place.library(SOURCE)
    failure = library.with_name("failed") if library is not None else None
    assert native.native is not None, failure.read_text() if failure is not None and failure.exists() else "no library"
    assert native.call is not python_call.call


@cache
def own_class(tg: Any) -> type:
    """A class of the program's tensors."""
    return type("Own", (tg.Tensor,), {})


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


NUMBERS = (2, 0.5, 0.0, -0.0, True, 1 + 2j, -3, float("nan"), 1 << 40)
SIZES = ((6,), [3, 2], (2, -1), (2, 3), (1, 2, 3), (-1,), (5,))


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


def _of_lines(sent: list[Any]) -> list[Any]:
    """Return instructions with the lines themselves: an instruction that Python specialises counts as another.

    Which ones it has specialised changes from run to run, and so where batches end, which free what has died before:
    calls that follow have that here.
    """
    lines = {one.number: one.line for one in sent if isinstance(one, messages.Site)}
    said: list[Any] = []
    died: list[int] = []
    for one in sent:
        if isinstance(one, messages.Free):
            died += one.ids
        elif isinstance(one, messages.Call):
            freed, died = [*died, *one.freed], []
            said.append(msgspec.structs.replace(one, site=lines.get(one.site, 0), freed=freed))
        elif not isinstance(one, messages.Site):
            said.append(msgspec.structs.replace(one, site=lines.get(one.site, 0)) if hasattr(one, "site") else one)
    return [*said, messages.Free(died)]


def _dropped(read: messages.Read) -> messages.Failure:
    """Return what a program gets for a number that it reads, such as that of a tensor in the place of a number."""
    return messages.Failure(
        messages.DROPPED, read.request, "NotComputedError", "nothing is computed", "read", "", "", ""
    )


class Recorder:
    """A session of an engine that computes nothing: it notes what it is sent, answers questions, and drops reads."""

    has_work = waits = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.sizes: list[int] = []
        self._answers: list[Any] = []

    def receive(self, kind: int, body: memoryview) -> None:
        batch = wire.decode_instructions(body) if kind == wire.BATCH else []
        self.sent += batch
        self.sizes.append(len(batch))
        self._answers += [messages.Answer(one.request, None) for one in batch if isinstance(one, messages.Query)]
        self._answers += [_dropped(one) for one in batch if isinstance(one, messages.Read)]

    def take_replies(self) -> list[tuple[int, list[Any]]]:
        answers, self._answers = self._answers, []
        return [(wire.BATCH, [wire.encode_batch(answers)])] if answers else []

    def frames_left(self) -> None:
        """Do nothing."""

    close = frames_left


class RecordingHost:
    """Stands for the host of an engine; ``session`` is the one that was opened."""

    def __init__(self, host: Any) -> None:
        self.hello, self.new_number = host.hello, host.new_number
        self.session = Recorder()

    def open(self, number: int, wishes: Any) -> Recorder:
        return self.session


@pytest.fixture
def recording(host: Any) -> Iterator[RecordingHost]:
    """An engine that computes nothing, while garbage is collected where a test asks for it."""
    gc.freeze()
    gc.disable()
    yield RecordingHost(host)
    gc.enable()


def _run(host: RecordingHost, call: Callable[..., Any], seed: int) -> tuple[list[bytes], list[Any]]:
    """Run a random program with these calls; returns what it has sent, and what it has seen."""
    import telegrad as tg

    host.session = Recorder()
    with tg.connect(in_process=host) as connection, pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(functions), "call", call)
        patch.setattr(prompt_errors, "check_where_caught", lambda check, how: None)  # its patience is the process's
        pool = Pool(tg, random.Random(seed))
        for usual in [*_usual_calls(tg).values()] * 3:
            pool.keep(usual())
        for _ in range(PROGRAMS):
            _program(tg, pool)
        seen = [*pool.seen, connection.session.operations]
        del pool
    return [wire.encode_batch([one]) for one in _of_lines(host.session.sent)], seen


def test_random_calls_send_and_give_the_same(recording: RecordingHost, seed: int) -> None:
    _run(recording, python_call.call, seed)  # what is cached changes who finds an error
    expected, found = (_run(recording, call, seed) for call in (python_call.call, native.call))
    assert found[1] == expected[1]
    assert found[0] == expected[0]


def _usual_calls(tg: Any) -> dict[str, Callable[[], Any]]:
    """Calls that are done in C, such that every branch is taken, and such that are left to Python."""
    x, y, leaf, scalar = tg.ones(2, 3), tg.ones(2, 3), tg.ones(2, 3, requires_grad=True), tg.tensor(2.0)
    own, parameter = x.as_subclass(own_class(tg)), tg.nn.Parameter(tg.ones(3))
    mean, base = tg.zeros(3), tg.ones(2, 3)
    root = tg.ones(3, 2)
    view = root.t()
    index = tg.tensor([1, 0])

    def refused() -> None:
        with pytest.raises(ShapeError):
            x @ y

    def overdue() -> Any:
        changed = tg.zeros(2, 3)
        view = changed.view(6)
        changed.add_(leaf)
        return view + 1

    def written_into_a_view() -> Any:
        with tg.no_grad():
            return view.add_(y)

    def written_into_what_it_shares() -> Any:
        with tg.no_grad():
            return view.add_(root.t())

    def in_inference_mode() -> Any:
        with tg.inference_mode():
            return x + y, x.t()

    return {
        "two operands": lambda: x + y, "a number": lambda: x * 0.5, "zero": lambda: x * -0.0,
        "reflected": lambda: 2 - x, "recorded": lambda: leaf * y + leaf, "a parameter": lambda: leaf + parameter,
        "an attribute": lambda: tg.softmax(x, dim=-1), "integers": lambda: tg.nn.functional.layer_norm(x, (3,)),
        "a view": lambda: x.t(), "a recorded view": lambda: leaf.view(3, 2), "a subclass": lambda: own + y,
        "a changed base": overdue, "constants": lambda: tg.nn.functional.batch_norm(leaf, mean, parameter),
        "inference": in_inference_mode, "in turn": lambda: tg.where(x > 0, x, leaf), "refused": refused,
        "a list": lambda: tg.cat([x, y]), "a recorded list": lambda: tg.stack((x, leaf, *[leaf] * 9)),
        "parts in a list": lambda: tg.stack([root[0], root[1]]), "a list beside an operand": lambda: leaf[index],
        "lists that are changed": lambda: EACH["add_"]([base, root], 1.5), "sizes": lambda: x.view(root.shape),
        "lists that give lists": lambda: EACH["neg"]([x, y]), "an item of a shape": lambda: root[1],
        "several": lambda: leaf.max(0), "in place": lambda: base.mul_(scalar),
        "a number in place": lambda: base.add_(1), "copied": lambda: base.copy_(mean), "filled": lambda: base.zero_(),
        "a view in place": written_into_a_view, "a base in place": lambda: root.add_(mean[:2]),
        "shared in place": written_into_what_it_shares,
        "recorded in place": lambda: (leaf * 2).mul_(scalar),
        "no operand": lambda: tg.zeros(2), "a shape": lambda: tg.ones(2, device="meta") + 1, "unary": lambda: -leaf,
    }  # fmt: skip


def test_batches_are_full_at_the_same_calls(recording: RecordingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        x, sizes = tg.ones(2), []
        for call in (python_call.call, native.call):
            monkeypatch.setitem(vars(functions), "call", call)
            connection.session.synchronize()
            recording.session.sizes.clear()
            for _ in range(1000):
                x + x
            sizes.append(recording.session.sizes.copy())
    assert len(sizes[0]) > 5
    assert sizes[1][1:] == sizes[0][1:]  # the first ones have lines that are new


def test_calls_leave_no_references(recording: RecordingHost) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        calls, session = _usual_calls(tg), connection.session
        shared = (None, True, False, 0, (), session, tg.ones(2, 3)._meta, tg.Tensor, OperationNode, tg.float32, DEFAULT)

        def count() -> list[int]:
            session.synchronize()
            recording.session.sent.clear()
            gc.collect()
            return [sys.getallocatedblocks(), *map(sys.getrefcount, shared)]

        for name, call in calls.items():
            for _ in range(60):
                call()
            before = count()
            for _ in range(TURNS):
                call()
            grown = [now - then for now, then in zip(count(), before, strict=True)]
            assert all(abs(one) < TURNS / 4 for one in grown), (name, grown)


def test_usual_calls_are_done_in_c(tg: Any) -> None:
    in_python = {
        "a changed base",
        "refused",
        "a list beside an operand",
        "lists that give lists",
        "several",
        "a shape",
        "recorded in place",
        "shared in place",
    }
    done: set[str] = set()
    for name, call in _usual_calls(tg).items():
        call()

        def note(frame: Any, event: str, argument: Any, name: str = name) -> None:
            if event == "call" and frame.f_code is python_call.call.__code__:
                done.add(name)

        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    assert done == in_python


def test_lines_that_a_session_forgets_are_introduced_again(recording: RecordingHost) -> None:
    import telegrad as tg

    with tg.connect(in_process=recording) as connection:
        x, session = tg.ones(2), connection.session
        introduced = []
        for _ in range(2):
            for _ in range(40):  # more than Python takes to specialise an instruction
                x + x
            session.synchronize()
            introduced.append([one.line for one in recording.session.sent if isinstance(one, messages.Site)])
            recording.session.sent.clear()
            session.sites.forget()
    assert introduced[1]
    assert set(introduced[1]) <= set(introduced[0])


def test_calls_of_threads_in_turn_have_the_modes_of_their_thread(tg: Any) -> None:
    leaf, turns, threads = tg.ones(2, requires_grad=True), 30, 3
    barrier = threading.Barrier(threads, timeout=60)
    recorded: dict[int, list[bool]] = {}

    def run(number: int) -> None:
        found = recorded[number] = []
        with tg.set_grad_enabled(number != 1):
            for _ in range(turns):
                barrier.wait()
                found.append((leaf * 2).requires_grad)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert recorded == {number: [number != 1] * turns for number in range(threads)}


def test_more_calls_than_are_remembered_compute_with_their_own_numbers(tg: Any, rng: np.random.Generator) -> None:
    x = tg.ones(1)
    numbers = [
        *rng.standard_normal(700).tolist(),
        *rng.integers(-1000, 1000, 700).tolist(),
        0,
        0.0,
        -0.0,
        True,
        1 << 40,
    ]
    numbers += [numbers[place] for place in rng.permutation(len(numbers))]  # they take each other's places
    found = tg.cat([x * number for number in numbers]).numpy()
    expected = np.array([float(number) for number in numbers])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_lists_of_parts_need_no_plan_for_each_combination(tg: Any, rng: np.random.Generator) -> None:
    parts = list(tg.arange(8.0))
    tg.stack(parts[:6])
    before, found = cache_info().plans, []
    combinations = [rng.integers(0, 8, 6).tolist() for _ in range(12)]
    for places in combinations:
        found.append(tg.stack([parts[place] for place in places]))
    assert cache_info().plans == before
    assert [one.tolist() for one in found] == combinations


def test_types_of_values_are_the_same_from_c_and_from_python(tg: Any) -> None:
    values = (tg.ones(2), 1, 2.5, None, "text", True, [1], (), tg.Tensor, type)
    for count in range(len(values) + 1):
        for names in ({}, {"dim": 1, "keepdim": True}):
            taken: Any = (values[:count], names) if names else (values[:count],)
            assert native.types_of(*taken) == native.types_of_in_python(*taken)
    for wrong in ((), ([],), ((), []), ((), {}, {})):
        with pytest.raises(TypeError, match="types_of: expected"):
            native.types_of(*wrong)
