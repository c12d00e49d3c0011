"""Which kernel serves an attention: our own at first, and a plan of cuDNN's where it has paid for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from server.engine import context
from server.engine.context import Context, CudnnModes
from server.engine.cuda.attention import choices, cudnn, hopper, tiled
from server.engine.cuda.attention.choices import LaunchUntilPlanned
from server.engine.cuda.attention.hopper import Balanced
from server.engine.cuda.families import import_families
from server.engine.cuda.texts import DEVICE, DescribedDevice
from server.engine.operators import OPERATORS, Request
from server.engine.replay.captures import settling
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .cuda_registrations import registrations, withdraw

_ = registrations
import_families()
withdraw()


class Device(DescribedDevice):
    """A device that captures, or not."""

    is_capturing = False
    settles = False


class Planned:
    """Notes which launches are made: ``own`` and, once it was built, ``plan``."""

    def __init__(self, has_plan: bool = True) -> None:
        self.backend, self.made = Device(), []
        self._has_plan = has_plan

    def launch(self, saved: float) -> Callable[[], str]:
        """One launch after another; each call returns which one it was."""
        launch = LaunchUntilPlanned(self.backend, self._noting("own"), self._build, saved)  # type: ignore[arg-type]

        def call() -> str:
            launch((), ())
            return self.made[-1]

        return call

    def _build(self) -> Any:
        self.made.append("built")
        return self._noting("plan") if self._has_plan else None

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda args, outs: self.made.append(name)


@pytest.fixture(autouse=True)
def session() -> Iterator[Context]:
    """A session of the test's own, which asks for nothing."""
    before, current = context.current, Context({})
    context.activate(current)
    yield current
    context.activate(before)


def test_a_plan_is_built_once_it_has_paid(rng: np.random.Generator) -> None:
    launches = int(rng.integers(2, 30))
    planned = Planned()
    call = planned.launch(choices._PLAN_SECONDS / launches * 1.001)
    assert [call() for _ in range(launches - 1)] == ["own"] * (launches - 1)
    assert [call(), call(), call()] == ["plan"] * 3
    assert planned.made.count("built") == 1


def test_what_is_captured_next_gets_its_plan_at_once() -> None:
    planned = Planned()
    call = planned.launch(0.0)
    assert call() == "own"
    with settling(planned.backend):  # type: ignore[arg-type]
        planned.backend.is_capturing = True
        assert call() == "own", "nothing is built while the device captures"
        planned.backend.is_capturing = False
        assert call() == "plan"
    assert call() == "plan"


def test_who_asks_for_the_same_results_gets_the_plan_from_the_first_launch(session: Context) -> None:
    call = Planned().launch(0.0)
    session.cudnn = CudnnModes(deterministic=True)
    assert call() == "plan"


def test_our_own_kernel_stays_where_there_is_no_plan() -> None:
    planned = Planned(has_plan=False)
    call = planned.launch(choices._PLAN_SECONDS)
    assert [call(), call(), call()] == ["own"] * 3
    assert planned.made.count("built") == 1


def _request(rows: int, dtype: Any, mask: bool = False, name: str = "_attention") -> Request:
    op = OPERATORS[name].op
    operand = Meta.of((8, 12, rows, 64), dtype, DEVICE)
    bias = Meta.of((8, 12, rows, rows), dtype, DEVICE) if mask else None
    args: tuple[Any, ...] = (operand, operand, operand, bias, not mask, 0.125, True)
    if name == "_attention_backward":
        statistic = Meta.of((8, 12, rows), dtypes.float32, DEVICE)
        args = operand, operand, operand, operand, bias, operand, statistic, not mask, 0.125
    return Request(op, Device(), args, op.infer(args), None)  # type: ignore[arg-type]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which kernels were prepared, with cuDNN there; the balance of Hopper's is 1 from 512 rows on."""
    made: list[str] = []

    def note(name: str, result: Any = None) -> Callable[[Request], Any]:
        def prepare(request: Request) -> Any:
            made.append(name)
            return result or (lambda args, outs: made.append(f"{name} runs"))

        return prepare

    monkeypatch.setattr(cudnn.cudnn_graph, "is_available", lambda: True)
    for module, names in ((tiled, ("forward", "backward")), (cudnn, ("forward", "backward"))):
        for name in names:
            monkeypatch.setattr(module, name, note(f"{module.__name__.rpartition('.')[2]} {name}"))

    def on_hopper(request: Request) -> Balanced | None:
        rows = request.args[0].shape[2]
        launch = note("hopper forward")(request)
        return Balanced(launch, 1.0 if rows >= 512 else 0.5) if rows >= 128 else None

    monkeypatch.setattr(hopper, "forward", on_hopper)
    return made


def _made(asked: list[str], prepare: Callable[[Request], Any], request: Request) -> str:
    launch = prepare(request)
    assert launch is not None
    launch((), ())
    return asked[-1]


def test_the_fastest_that_needs_no_plan_comes_first(asked: list[str]) -> None:
    assert _made(asked, choices.forward, _request(1024, dtypes.bfloat16)) == "hopper forward runs"
    assert _made(asked, choices.forward, _request(256, dtypes.bfloat16)) == "hopper forward runs"
    assert _made(asked, choices.forward, _request(64, dtypes.float16)) == "tiled forward runs"
    assert (
        _made(asked, choices.backward, _request(64, dtypes.float16, name="_attention_backward"))
        == "tiled backward runs"
    )
    assert not any(name.startswith("cudnn") for name in asked)


def test_large_work_gets_a_plan_soon_and_small_work_late(asked: list[str]) -> None:
    counts = {}
    for rows in (1024, 256):
        launch = choices.backward(_request(rows, dtypes.bfloat16, name="_attention_backward"))
        assert launch is not None
        counts[rows] = next(n for n in range(100_000) if launch((), ()) or asked[-1] == "cudnn backward runs")
    assert 10 < counts[1024] < 1000 and counts[256] == pytest.approx(16 * counts[1024], rel=0.2)


def test_a_mask_is_served_by_a_plan_at_once(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper, "forward", lambda request: None)
    monkeypatch.setattr(tiled, "forward", lambda request: None)
    assert _made(asked, choices.forward, _request(64, dtypes.bfloat16, mask=True)) == "cudnn forward runs"


def test_float32_waits_for_no_plan(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper, "forward", lambda request: None)
    launch = choices.forward(_request(64, dtypes.float32))
    assert not isinstance(launch, LaunchUntilPlanned)
