"""Launches of Triton's kernels like one that came before: made without Triton, and the same as with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernel_driver import NotedDriver

triton = pytest.importorskip("triton", reason="Triton's wheel has 290 MB; GPU machines have it with PyTorch")
tl = pytest.importorskip("triton.language")

BLOCK = 128
SHIFT = tl.constexpr(3)


@triton.jit
def _axpy(x_ptr, out_ptr, n, alpha, wide, null, flag, BLOCK: tl.constexpr, KIND: tl.constexpr = 1):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + places, mask=places < n) * alpha + wide + SHIFT
    if flag:
        total += KIND
    if null is not None:
        tl.store(null, 1)
    tl.store(out_ptr + places, total, mask=places < n)


@triton.jit
def _by_keyword(x_ptr, n=5, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
    tl.store(x_ptr + tl.arange(0, BLOCK), n)


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that Triton itself has looked at."""
    calls: list[Any] = []
    look_up = triton.runtime.jit.compute_cache_key
    monkeypatch.setattr(
        triton.runtime.jit, "compute_cache_key", lambda *args: calls.append(args) or look_up(*args), raising=True
    )
    return calls


def _variants(tg: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    x, out = tg.ones(1024, device="cuda"), tg.zeros(1024, device="cuda")
    half, flags = x.half(), tg.zeros(4, dtype=tg.int32, device="cuda")
    usual = {"BLOCK": BLOCK}
    for n in (1000, 1008, 1, 0, -16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63):
        yield (x, out, n, 2.5, 7, None, True), usual
    for given in (
        (x[1:], out, 1000), (x, out[2:], 1000), (x[4:], out[8:], 1000), (half, out, 1000), (half[4:], out, 1000),
        (half[8:], out, 1000), (x.reshape(32, 32).t(), out, 1000),
    ):  # fmt: skip
        yield (*given, 2.5, 7, None, False), usual
    yield (x, out, 1000, 2, 7, flags, True), usual
    for alpha in (0.0, -0.0, float("nan"), 1.0, 1, True):
        yield (x, out, 1000, alpha, 7, None, True), usual
    yield (x, out, 1000, True, False, flags[1:], 1), usual
    for changed in ({"KIND": 2}, {"KIND": True}, {"KIND": 2.0}, {"num_warps": 8}, {"num_stages": 2, "num_warps": 2}):
        yield (x, out, 1000, 2.5, 7, None, True), {**usual, **changed}
    yield (x, out), {"wide": 2**40, "n": 16, "BLOCK": 64, "null": None, "flag": True, "alpha": 0.5}
    yield (tg.nn.Parameter(x), out.as_subclass(type("Sub", (tg.Tensor,), {})), 48, -0.0, 3, None, True), usual


def test_a_launch_that_comes_again_is_the_same_and_passes_triton_by(
    tg: Any, driver: NotedDriver, binds: list[Any]
) -> None:
    variants = list(_variants(tg))
    first = []
    for args, kwargs in variants:
        kernel = _axpy[(4, 2)](*args, **kwargs)
        tg.cuda.synchronize()
        first.append((kernel, driver.launched[-1]))
    looked_at = len(binds)
    assert looked_at > len({id(kernel) for kernel, _ in first}) > 12, "many specialisations"
    for order in (variants, variants[::-1]):
        driver.launched.clear()
        kernels = [_axpy[lambda meta: (4 * bool(meta["BLOCK"]), 2)](*args, **kwargs) for args, kwargs in order]
        tg.cuda.synchronize()
        expected = first if order is variants else first[::-1]
        for place, (kernel, launched) in enumerate(expected):
            assert kernels[place] is kernel, order[place]
            assert driver.launched[place] == launched, order[place]
    assert len(binds) == looked_at


def test_defaults_and_arguments_by_keyword_are_bound_as_the_function_says(tg: Any, driver: NotedDriver) -> None:
    x = tg.zeros(64, dtype=tg.int32, device="cuda")
    _by_keyword[(1,)](x_ptr=x)
    seen: list[dict[str, Any]] = []
    for _ in range(2):
        _by_keyword[lambda meta: seen.append(dict(meta)) or (2,)](n=5, x_ptr=x)
        _by_keyword[(1,)](x_ptr=x)
        _by_keyword[(1,)](x, BLOCK=32)
    tg.cuda.synchronize()
    assert [launch.geometry.grid[0] for launch in driver.launched] == [1, 2, 1, 1, 2, 1, 1]
    assert all(launch.arguments[:2] == driver.launched[0].arguments[:2] for launch in driver.launched)
    assert [list(meta) for meta in seen] == [["x_ptr", "n", "BLOCK"]] * 2 and seen[1]["BLOCK"] == 64
    with pytest.raises(TypeError):
        _by_keyword[(1,)](x, x_ptr=x)


def test_what_the_program_changes_between_launches_is_seen(
    tg: Any, driver: NotedDriver, binds: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = tg.zeros(64, dtype=tg.int32, device="cuda")

    def launch() -> Any:
        return _by_keyword[(1,)](x, 7, BLOCK=64)

    first = launch()
    assert launch() is first
    entered: list[Any] = []
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(entered.append)
    assert launch() is first and len(entered) == 1
    hooks.remove(entered.append)
    entered.clear()
    _by_keyword.add_pre_run_hook(lambda *args, **kwargs: entered.append(args))
    assert launch() is first and len(entered) == 1
    _by_keyword.pre_run_hooks.clear()
    looked_at = len(binds)
    assert launch() is first and len(binds) == looked_at
    _by_keyword.device_caches.clear()
    assert launch() is not first, "Triton's own caches were emptied"
    args = (x, x, 5, 2.5, 7, None, True)
    _axpy[(1,)](*args, BLOCK=BLOCK)
    monkeypatch.setitem(_axpy.__globals__, "SHIFT", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="SHIFT has changed"):
        _axpy[(1,)](*args, BLOCK=BLOCK)


def _axpy_with_both(first: Any, second: Any) -> None:
    """Launch with two tensors of one GPU, and then with the second one of another."""
    for out in (first, first, second):
        _axpy[(1,)](first, out, 5, 2.5, 7, None, True, BLOCK=BLOCK)


def test_launches_of_sessions_and_gpus_are_kept_apart(tg: Any, simulated: Any, driver: NotedDriver) -> None:
    x = tg.zeros(64, dtype=tg.int32, device="cuda:0")
    y = tg.zeros(64, dtype=tg.int32, device="cuda:1")
    with tg.connect(in_process=simulated):
        other = tg.zeros(64, dtype=tg.int32, device="cuda:0")
        for _ in range(3):
            for tensor in (x, other):
                _by_keyword[(1,)](tensor, 9)
        tg.cuda.synchronize()
    tg.cuda.synchronize()
    address = [launch.arguments[0] for launch in driver.launched]
    assert len(address) == 6 and len(set(address)) == 2
    assert x._version == 3
    with pytest.raises(tg.errors.DeviceError, match="argument 2 is"):
        _axpy_with_both(x, y)
