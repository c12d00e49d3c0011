"""What concerns the handle itself: copies, pickling, files, random state, types by default, messages, memory."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telegrad.errors import (
    ArgumentError,
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DimensionError,
    DTypeError,
    InplaceError,
    ShapeError,
)


def test_tensors_are_pickled_with_their_elements(tg: Any) -> None:
    base = tg.arange(6).reshape(2, 3)
    kept = {
        "view": base.T,
        "half": tg.ones(2).bfloat16(),
        "leaf": tg.ones(1, requires_grad=True),
        "none": tg.ones(0, 2),
    }
    back = pickle.loads(pickle.dumps({**kept, "layer": tg.nn.Linear(2, 3)}))
    base.zero_()
    assert back["view"].tolist() == [[0, 3], [1, 4], [2, 5]] and back["half"].dtype is tg.bfloat16
    assert back["leaf"].requires_grad and back["leaf"].is_leaf
    assert isinstance(back["layer"].weight, tg.nn.Parameter) and back["layer"](tg.ones(1, 2)).shape == (1, 3)


@pytest.mark.parametrize("base", ["Tensor", "nn.Parameter"])
def test_pickled_tensors_keep_the_programs_class_and_attributes(
    tg: Any, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    """Of a class made from ``Parameter`` a parameter comes back, as in PyTorch."""
    import torch

    def pickled(library: Any) -> list[Any]:
        kind = operator.attrgetter(base)(library)
        own: Any = type("_Own", (kind,), {"__module__": __name__, "__qualname__": "_Own"})
        monkeypatch.setitem(globals(), "_Own", own)
        one = library.ones(2).as_subclass(own) if base == "Tensor" else own(library.ones(2))
        noted = library.arange(3)
        one.note, noted.note = {"by": "program"}, 5
        back, plain = pickle.loads(pickle.dumps([one, noted]))
        names = [type(each).__name__ for each in (back, plain)]
        return [*names, back.note, plain.note, back.requires_grad, back.is_leaf, back.tolist(), plain.tolist()]

    assert pickled(tg) == pickled(torch)


def test_constructors_refuse_what_they_cannot_make_tensors_of(tg: Any) -> None:
    assert tg.Tensor(tg.ones(2, dtype=tg.int64)).dtype is tg.int64, "the constructor of Tensor takes one of any type"
    with pytest.raises(DTypeError, match=r"LongTensor: expected a tensor of telegrad.int64, got float32\[2\]"):
        tg.LongTensor(tg.ones(2))
    with pytest.raises(ArgumentTypeError, match="expected sizes or data, not float"):
        tg.Tensor(1.5)
    with pytest.raises(ValueError, match=r"invalid type: 'FlatTensor'"):
        tg.ones(1).type("FlatTensor")


def test_copies_of_containers_share_nothing(tg: Any) -> None:
    original = {"a": tg.ones(2, requires_grad=True), "b": [tg.zeros(1)]}
    twin = copy.deepcopy(original)
    with tg.no_grad():
        twin["a"].add_(1)
    assert (original["a"].tolist(), twin["a"].tolist()) == ([1.0, 1.0], [2.0, 2.0])
    assert twin["a"].requires_grad and twin["a"].is_leaf


def test_save_and_load(tg: Any, tmp_path: Path) -> None:
    state = {"w": tg.randn(3, 4), "half": tg.ones(2).bfloat16(), "n": [1, 2.5, "x", None, True], "t": (tg.arange(3),)}
    tg.save(state, tmp_path / "state.safetensors")
    loaded = tg.load(tmp_path / "state.safetensors")
    assert tg.equal(loaded["w"], state["w"]) and loaded["half"].dtype is tg.bfloat16
    assert loaded["n"] == state["n"] and loaded["t"][0].tolist() == [0, 1, 2]
    assert tg.load(tmp_path / "state.safetensors", map_location="cpu")["w"].device == "cpu"
    with pytest.raises(DeviceError, match="cuda:3"):
        tg.load(tmp_path / "state.safetensors", map_location="cuda:3")


def test_random_state_can_be_kept_and_restored(tg: Any) -> None:
    tg.manual_seed(5)
    assert tg.initial_seed() == 5
    state = tg.get_rng_state()
    first = tg.randn(10).tolist()
    second = tg.rand(3).tolist()
    tg.set_rng_state(state)
    assert (tg.randn(10).tolist(), tg.rand(3).tolist()) == (first, second)
    tg.manual_seed(5)
    assert tg.randn(10).tolist() == first
    assert isinstance(tg.seed(), int) and tg.randn(10).tolist() != first
    with pytest.raises(TypeError, match="get_rng_state"):
        tg.set_rng_state(tg.ones(3))
    with pytest.raises(ArgumentError, match="64 bits"):
        tg.manual_seed(2**64)


def test_the_default_dtype_is_everybodys(tg: Any) -> None:
    try:
        tg.set_default_dtype(tg.float64)
        assert tg.get_default_dtype() is tg.float64
        for made in (tg.zeros(1), tg.tensor(1.5), tg.arange(3) / 2, tg.tensor([1j]).real, tg.ones(2).mean()):
            assert made.dtype is tg.float64
            (meta, _), *_ = made._session.describe((made._id,), (made.device,))
            assert meta == made._meta
        with pytest.raises(TypeError, match="floating-point"):
            tg.set_default_dtype(tg.int32)
    finally:
        tg.set_default_dtype(tg.float32)
    assert (tg.arange(3) / 2).dtype is tg.float32


def test_generators_run_under_the_mode_of_their_decorator(tg: Any) -> None:
    @tg.no_grad()
    def numbers() -> Any:
        received = yield tg.is_grad_enabled()
        try:
            yield (received, tg.is_grad_enabled())
        except KeyError:
            yield "caught"
        return "end"

    generator = numbers()
    assert next(generator) is False and tg.is_grad_enabled()
    assert generator.send(7) == (7, False) and tg.is_grad_enabled()
    assert generator.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration, match="end"):
        next(generator)


MESSAGES = {
    "tg.ones(2) + tg.ones(3)": (ShapeError, r"add: .*float32\[2\].*float32\[3\]|add: .*\[2\].*\[3\]"),
    "tg.ones(2, 3) @ tg.ones(2, 3)": (ShapeError, r"float32\[2,3\]"),
    "tg.ones(2).sum(5)": (DimensionError, "5"),
    "tg.ones(2).view(3)": (ShapeError, "3"),
    "tg.maximum(1, 2)": (ArgumentTypeError, "must be a tensor"),
    "tg.add(tg.ones(2))": (ArgumentTypeError, "missing argument 'other'"),
    "tg.add(tg.ones(2), 1, gamma=2)": (ArgumentTypeError, "argument 'gamma' is unknown: add"),
    "tg.ones(2).add('x')": (ArgumentTypeError, "argument 'other' must be a tensor or a number, not str 'x'"),
    "tg.ones(2).max(1, 2, 3, 4)": (ArgumentTypeError, "max: no form takes .*; there are: "),
    "tg.ones(2).max('x')": (ArgumentTypeError, "max: no form takes .*str 'x'"),
    "tg.ones(2, device='cuda:5')": (DeviceError, "cuda:5.*cpu"),
    "tg.ones(2).to('cuda')": (DeviceError, "cuda.*the server has cpu"),
    "tg.ones(2).to('gpu')": (ArgumentError, "Expected one of cpu, cuda, xpu"),
    "tg.tensor(1, device=5)": (DeviceError, "cuda:5"),
    "tg.ones(2, dtype='float32')": (ArgumentTypeError, "dtype"),
    "tg.ones(2, layout='strided')": (
        ArgumentTypeError,
        "layout must be one such as telegrad.sparse_coo, not 'strided'",
    ),
    "tg.ones(2).item()": (ShapeError, r"use tolist\(\)"),
    "tg.ones(2).requires_grad_().numpy()": (RuntimeError, r"Use tensor\.detach\(\)\.numpy\(\)"),
    "tg.ones(2).requires_grad_().add_(1)": (InplaceError, r"use no_grad\(\) or detach\(\) it first"),
    "tg.ones(2).bfloat16().numpy()": (ArgumentTypeError, r"use tensor\.float\(\)\.numpy\(\)"),
    "tg.ones(3).expand(2, 3).add_(1)": (InplaceError, r"clone\(\) the tensor before"),
    "tg.ones(2).register_hook(print)": (AutogradError, "doesn't require gradient"),
    "tg.ones(2).backward()": (RuntimeError, "does not require grad"),
    "tg.set_grad_enabled()": (TypeError, "mode"),
    "tg.optim.SGD([], 0.1)": (ValueError, "parameter"),
}


@pytest.mark.parametrize("program", MESSAGES)
def test_messages_say_what_to_do(tg: Any, program: str) -> None:
    kind, pattern = MESSAGES[program]
    with pytest.raises(kind, match=pattern):
        eval(program, {"tg": tg})  # noqa: S307 - a program of this file


def test_arrays_beside_tensors_become_tensors_of_their_own_type(tg: Any) -> None:
    ones = tg.ones(3)
    for made in (ones + np.ones(3), np.ones(3) + ones, np.ones(3) * ones):
        assert made.dtype is tg.float64 and made.device == ones.device
    assert (ones * np.arange(3)).tolist() == (np.arange(3) * ones).tolist() == [0.0, 1.0, 2.0]
    assert (np.arange(3) < ones).tolist() == [True, False, False]
    ones += np.ones(3)
    assert ones.dtype is tg.float32 and ones.tolist() == [2.0] * 3
    with pytest.raises(TypeError, match=r"astype\(\)"):
        ones + np.array(["a", "b", "c"])


def test_memory_is_free_when_the_last_handle_is(tg: Any) -> None:
    tg.cuda.synchronize()
    before = tg.cuda.memory_allocated()
    x = tg.ones(1000, requires_grad=True)
    for _ in range(3):
        y = (x * 2).exp()
        y.sum().backward()
    view = y.detach()[10:20]
    del y
    assert tg.cuda.memory_allocated() >= before + 3 * 4000
    del view, x
    assert tg.cuda.memory_allocated() == before


def test_handles_make_no_reference_cycles(tg: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        x = tg.ones(5, requires_grad=True)
        y = (x * 2).view(5).sum()
        y.retain_grad()
        y.backward()
        v = tg.zeros(4)[1:]
        v.mul_(tg.ones(3, requires_grad=True))
        del x, y, v
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_list_of_results_has_names(tg: Any) -> None:
    result = tg.tensor([[3.0, 1.0]]).sort(1)
    values, indices = result
    assert result.values is values and result.indices is indices is result[1]
    assert repr(result).startswith("torch.return_types.sort(\nvalues=tensor([[1., 3.]]),\nindices=")
    kind = tg.return_types.sort
    for made in (kind((values, indices)), kind([values, indices], {}), kind(values, indices), kind(values, indices={})):
        assert type(made) is kind and made.values is values
    assert kind((values, indices), {}).indices is indices
    with pytest.raises(TypeError):
        kind((values,))


def test_a_read_costs_one_round_trip_and_nothing_else_one(tg: Any) -> None:
    x = tg.randn(10, 10, requires_grad=True)
    for action, cost in (
        (lambda: x * 2 + tg.ones(10), 0), (lambda: x.sum().backward(), 0), (lambda: x.grad, 0), (lambda: x.shape, 0),
        (lambda: x.sum().item(), 1), (lambda: x.tolist(), 1), (lambda: x.detach().numpy(), 1), (lambda: repr(x), 1),
        (lambda: bool((x > 0).any()), 1), (lambda: (x > 0).nonzero(), 1), (lambda: x[x > 0], 1),
        (lambda: tg.equal(x, x), 1), (lambda: tg.tensor([1, 2]), 0), (lambda: x.to(tg.float64).cpu(), 0),
        (lambda: x[1:, None, ::2].clone(), 0), (lambda: x[[1, 2]], 0), (lambda: list(x), 0), (lambda: len(x), 0),
    ):  # fmt: skip
        before = tg.wire_stats().round_trips
        action()
        assert tg.wire_stats().round_trips - before == cost, action.__code__.co_firstlineno


def test_numbers_that_are_equal_but_not_the_same_are_kept_apart(tg: Any) -> None:
    x = tg.ones(2, dtype=tg.int32)
    for number, kind in ((1, "int32"), (True, "int32"), (1.0, "float32"), (1 + 0j, "complex64"), (1, "int32")):
        assert (x * number).dtype.name == kind
    for number, kind in ((np.int64(1), "int32"), (np.float32(1), "float32"), (np.bool_(1), "int32")):
        assert tg.mul(x, number).dtype.name == kind
    for zero in (0.0, -0.0, 0.0):
        assert np.signbit(tg.full((1,), zero).numpy()[0]) == np.signbit(zero)
        assert np.signbit((tg.zeros(1) * zero).numpy()[0]) == np.signbit(zero)
        assert np.signbit(tg.tensor([zero]).numpy()[0]) == np.signbit(zero)
    assert (tg.full((2,), 0).dtype, tg.full((2,), False).dtype, tg.full((2,), 0.0).dtype) == (
        tg.int64,
        tg.bool,
        tg.float32,
    )


def test_results_with_names_are_lists_of_tensors(tg: Any) -> None:
    for _ in range(3):
        parts = tg.tensor([[3.0, 1.0]]).sort(1)
        assert tg.cat([parts.values, parts.values]).shape == (2, 2)
        pair = parts._replace(indices=parts.values)
        assert tg.stack(pair).shape == tg.stack(list(pair)).shape == (2, 1, 2)


def test_tensors_of_two_sessions_never_meet(tg: Any, host: Any) -> None:
    mine, leaf = tg.ones(2), tg.ones(2, requires_grad=True)
    tg.cat([mine, mine]), tg.stack([mine, mine])
    with tg.connect(in_process=host):
        other, other_leaf = tg.ones(2), tg.ones(2, requires_grad=True)
        assert tg.cat([other, other]).shape == (4,)
        for mix in (
            lambda: mine + other, lambda: tg.cat([mine, other]), lambda: tg.stack([other, mine]),
            lambda: mine.add_(other), lambda: tg.add(mine, 1, out=other),
            lambda: setattr(leaf, "grad", other), lambda: setattr(mine, "data", other),
            lambda: tg.autograd.backward([leaf.sum(), other_leaf.sum()]), lambda: (leaf * 1).backward(other),
            lambda: leaf.sum().backward(inputs=[other_leaf]), lambda: tg.autograd.grad(leaf.sum(), [other_leaf]),
            lambda: mine.__setitem__(0, other[0]), lambda: mine[tg.tensor([0])], lambda: tg.where(mine > 0, other, 0),
            lambda: mine.to(other.dtype).copy_(other),
        ):  # fmt: skip
            with pytest.raises(DeviceError, match="session"):
                mix()


def test_the_default_device_can_be_named(tg: Any) -> None:
    assert tg.get_default_device() == "cpu"
    tg.set_default_device("cpu")
    assert tg.zeros(2).device == "cpu"
    with pytest.raises(DeviceError, match=r"cuda:1.*the server has cpu"):
        tg.set_default_device("cuda:1")
