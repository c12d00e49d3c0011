"""How calls are looked up, and when what they queue is sent."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from telegrad._ops.call_plan import cache_info
from telegrad._session.sending.send_queue import BATCH_OPERATIONS
from telegrad_protocol.errors import DeviceError


class Numbers(list[Any]):
    """A list that is its own class, and can be referred to weakly."""


def _bits(tensor: Any) -> tuple[Any, Any, Any]:
    array = tensor.numpy()
    return tensor.dtype, array.tolist(), np.signbit(array).tolist() if array.dtype.kind == "f" else None


def test_arguments_that_are_equal_but_not_the_same_are_told_apart(tg: Any) -> None:
    ints = tg.tensor([1, 2])
    for _ in range(2):
        found = [_bits(ints * factor) for factor in (1, 1.0, True)]
        assert [each[0] for each in found] == [tg.int64, tg.float32, tg.int64]
    floats = tg.ones(2)
    for zero in (0.0, -0.0, 0, np.float64(-0.0), np.float64(0.0), -0.0):
        assert _bits(floats * zero)[2] == [bool(np.signbit(zero))] * 2
        assert _bits(tg.full((2,), zero, dtype=tg.float32))[2] == [bool(np.signbit(zero))] * 2
        assert _bits(tg.full(size=(2,), fill_value=zero, dtype=tg.float32))[2] == [bool(np.signbit(zero))] * 2


def test_a_call_means_the_same_however_it_is_written(tg: Any) -> None:
    x = tg.arange(6.0)
    ways = [
        lambda: x.view(2, 3), lambda: x.view((2, 3)), lambda: x.view([2, 3]), lambda: x.view(Numbers([2, 3])),
        lambda: x.view(-1, 3), lambda: x.view(2, -1),
    ]  # fmt: skip
    for _ in range(2):
        for way in ways:
            assert way().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert x.view(3, 2).shape == (3, 2)
        assert tg.addmm(tg.zeros(1), tg.ones(2, 2), tg.ones(2, 2), alpha=2).tolist() == [[4.0, 4.0], [4.0, 4.0]]
        assert tg.addmm(mat2=tg.ones(2, 2), mat1=tg.ones(2, 2), input=tg.zeros(1)).tolist() == [[2.0, 2.0], [2.0, 2.0]]
        assert tg.nn.functional.cross_entropy(reduction="sum", target=tg.tensor([0]), input=tg.zeros(1, 1)).item() == 0


def test_where_a_tensor_stands_decides_whether_its_gradient_flows(tg: Any) -> None:
    rows, x = tg.tensor([1, 0, 1]), tg.ones(2, requires_grad=True)
    for _ in range(2):
        x.grad = None
        (tg.take(x, rows) * tg.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
        x.grad = None
        tg.where(tg.tensor([True, False]), 2.0, x).sum().backward()
        assert x.grad.tolist() == [0.0, 1.0]
        x.grad = None
        tg.stack([x, x, tg.zeros(2)]).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
        logits, target = tg.zeros(1, 2, requires_grad=True), tg.tensor([0])
        assert not tg.nn.functional.cross_entropy(logits.detach(), target, x).requires_grad
        tg.nn.functional.cross_entropy(logits, target, weight := tg.ones(2, requires_grad=True)).backward()
        assert logits.grad.tolist() == [[-0.5, 0.5]]
        assert weight.grad is None


def test_repeated_calls_are_planned_once(tg: Any) -> None:
    x, out = tg.ones(2), tg.ones(2)
    parameters = [tg.nn.Parameter(tg.ones(2)) for _ in range(3)]

    def calls() -> None:
        tg.add(x, x, alpha=2, out=out)
        tg.add(x, x, alpha=2, out=None)
        tg.full((2,), 0.0)
        x.view(1, 2).sum(0).max()
        tg.stack(parameters)
        tg.stack([x, parameters[0]])

    calls()
    before = cache_info()
    for _ in range(3):
        calls()
    assert cache_info() == before


def test_proxies_of_tensors_are_tensors(tg: Any) -> None:
    x, numbers = tg.ones(2, requires_grad=True), Numbers()
    for number in range(1, 3):
        with pytest.raises(TypeError):
            tg.exp(weakref.proxy(numbers))
        proxy = weakref.proxy(x)
        (tg.exp(proxy) * 0 + proxy + tg.stack([proxy, proxy])[0]).sum().backward()
        assert x.grad.tolist() == [2.0 * number] * 2
        with pytest.raises(TypeError):
            tg.stack([weakref.proxy(numbers)])


def test_operands_of_several_sessions_are_refused_wherever_they_stand(tg: Any) -> None:
    x = tg.ones(2)
    with tg.connect(devices="cpu"):
        y = tg.ones(2)
        for _ in range(2):
            for call in (lambda: x + y, lambda: tg.stack([x, y]), lambda: tg.stack([y, x, None])):
                with pytest.raises(DeviceError, match="different sessions"):
                    call()
            assert tg.stack([y, y]).tolist() == [[1.0, 1.0]] * 2


def test_a_batch_is_full_when_so_much_was_queued_since_the_last_one(tg: Any) -> None:
    x = tg.ones(2)
    x._session.transport.arm = lambda: None  # no timer sends
    session = x._session
    for _ in range(4):
        x.tolist()
        sent = session.transport.stats.frames
        for _ in range(BATCH_OPERATIONS - 1):
            x.add_(1)
        assert session.transport.stats.frames == sent
        x.add_(1)
        assert session.transport.stats.frames == sent + 1
        for _ in range(BATCH_OPERATIONS // 2):
            x.add_(1)
    del session.transport.arm


def test_the_line_that_calls_is_found_for_every_kind_of_operation(tg: Any) -> None:
    x = tg.ones(2, 2)
    calls = [
        lambda: x.exp(), lambda: tg.exp(x), lambda: x.view(4), lambda: x.add_(1), lambda: x.max(0), lambda: x.nonzero(),
        lambda: x.unbind(0), lambda: tg.add(x, x, out=x), lambda: tg.zeros(2), lambda: x + 1, lambda: 1 - x,
    ]  # fmt: skip
    sites = x._session.sites
    for _ in range(2):
        for call in calls:
            sites.forget()
            call()
            assert call.__code__ in sites.introduced()


def test_sizes_are_told_apart_from_other_numbers_in_their_place(tg: Any) -> None:
    x = tg.arange(2.0)
    for _ in range(2):
        assert tg.stack([x, x]).sum((0, 1)).item() == 2.0
        assert x.view([2, 1]).shape == x.view((2, 1)).shape == (2, 1)
        for sizes in ((2, 1.0), [2.0, 1], (2, "1")):
            with pytest.raises(TypeError):
                x.view(sizes)
        with pytest.raises(TypeError):
            tg.stack([x, 1])


def test_operators_ask_a_mode_that_begins_after_they_were_called(tg: Any) -> None:
    asked: list[str] = []

    class Noting(tg.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(function.__name__)
            return function(*args, **(kwargs or {}))

    x = tg.ones(2)
    for _ in range(2):
        for _ in range(2):
            assert ((x + x) * 2.0 - 1).tolist() == (1.0 + x * 2).tolist() == [3.0, 3.0]
        assert asked == []
        with Noting():
            ((x + x) * 2.0 - 1, 1.0 + x)
        assert asked == ["add", "mul", "sub", "add"]
        asked.clear()
