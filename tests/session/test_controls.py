"""Operations and backward passes that the gateway asks a session for."""

from __future__ import annotations

import gc
import math
import re
from typing import Any

import numpy as np
import pytest

from server.ipc import requests as verbs
from server.ipc.requests import NewTensor, RunOp, RunOps
from telegrad_protocol import dtypes
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DTypeError,
    IndexOutOfRangeError,
    InplaceError,
    OutOfMemoryError,
    ProtocolError,
    ShapeError,
    TelegradError,
    UnknownIdError,
)
from telegrad_protocol.messages import SERVER_IDS, Mode

from .driver import Talk, call
from .requests import X, ask, new, op, read, run, t


def test_steps_run_in_order_and_answer_what_they_made(talk: Talk) -> None:
    answers = ask(
        talk,
        RunOps(0, [new(1, X, leaf=True), op("mul", t(1), 2.5), op("sum", t(SERVER_IDS), dim=1, keepdim=True, out=5)]),
        list[list[verbs.TensorInfo]],
    )
    assert answers == [
        [verbs.TensorInfo(1, "float32", (2, 3), (3, 1), 0, "cpu", True)],
        [verbs.TensorInfo(SERVER_IDS, "float32", (2, 3), (3, 1), 0, "cpu", True)],
        [verbs.TensorInfo(5, "float32", (2, 1), (1, 1), 0, "cpu", True)],
    ]
    np.testing.assert_array_equal(read(talk, 5), (X * np.float32(2.5)).sum(1, keepdims=True))


def test_ids_of_the_session_do_not_meet_the_clients(talk: Talk) -> None:
    run(talk, new(SERVER_IDS, X), new(SERVER_IDS + 1, X))
    assert run(talk, op("neg", t(SERVER_IDS))).id == SERVER_IDS + 2
    ask(talk, verbs.Free((SERVER_IDS + 2,)))
    assert run(talk, op("neg", t(SERVER_IDS))).id == SERVER_IDS + 3


def test_several_results_get_their_names(talk: Talk) -> None:
    run(talk, new(1, X))
    values, indices = run(talk, op("max", t(1), 1, out=(8, 9)))
    assert (values.id, values.dtype, indices.id, indices.dtype) == (8, "float32", 9, "int64")
    np.testing.assert_array_equal(read(talk, 9), [2, 2])
    first, second = run(talk, op("unbind", t(1)))
    assert (first.id, second.id, second.offset) == (SERVER_IDS, SERVER_IDS + 1, 3)


def test_overloads_are_chosen_by_the_arguments(talk: Talk) -> None:
    run(talk, new(1, X))
    assert run(talk, op("max", t(1))).shape == ()
    assert len(run(talk, op("max", t(1), dim=0))) == 2
    assert run(talk, op("max", t(1), t(1))).shape == (2, 3)


@pytest.mark.parametrize("name", ["relu", "nn.functional.relu"])
def test_functions_of_a_module_are_found_by_either_name(talk: Talk, name: str) -> None:
    run(talk, new(1, -X), op(name, t(1), out=2))
    np.testing.assert_array_equal(read(talk, 2), 0 * X)


def test_an_operation_in_place_answers_what_it_changed(talk: Talk) -> None:
    run(talk, new(1, X), op("t", t(1), out=2))
    assert run(talk, op("add_", t(2), 1)).id == 2
    np.testing.assert_array_equal(read(talk, 1), X + 1)
    assert run(talk, op("add_", t(1), 1, out=7)).id == 7
    np.testing.assert_array_equal(read(talk, 7), X + 2)


def test_results_can_be_written_into_tensors(talk: Talk) -> None:
    run(talk, new(1, X), new(2, 0 * X))
    assert run(talk, RunOp("mul", [t(1), 3], {"out": t(2)}, None, False)).id == 2
    np.testing.assert_array_equal(read(talk, 2), 3 * X)


def test_names_of_types_and_devices_and_special_numbers(talk: Talk) -> None:
    assert run(talk, op("zeros", 2, 3, dtype="torch.int64")).dtype == "int64"
    assert run(talk, op("ones", [2], dtype="double", device="cpu")).dtype == "float64"
    run(talk, new(1, X), op("mul", t(1), {"complex": [0.0, 1.0]}, out=2), op("full", [2], "-Infinity", out=3))
    np.testing.assert_array_equal(read(talk, 2), X * np.complex64(1j))
    np.testing.assert_array_equal(read(talk, 3), [-math.inf] * 2)


def test_operations_run_under_the_modes_of_the_session(talk: Talk) -> None:
    talk.send(Mode("default_dtype", dtypes.float64.code), Mode("grad", False))
    assert run(talk, op("zeros", 2)).dtype == "float64"
    assert not run(talk, new(1, X, leaf=True), op("neg", t(1))).requires_grad


def test_an_id_that_is_taken_is_replaced(talk: Talk) -> None:
    run(talk, new(1, X), new(1, 2 * X), op("neg", t(1), out=1))
    np.testing.assert_array_equal(read(talk, 1), -2 * X)
    assert len(talk.session.state.values) == 1


def test_leaves_can_be_made_of_new_tensors_only(talk: Talk) -> None:
    assert run(talk, op("ones", 2, leaf=True, out=1)).requires_grad
    with pytest.raises(AutogradError):
        run(talk, op("neg", t(1), leaf=True))
    with pytest.raises(DTypeError):
        run(talk, op("ones", 2, dtype="int64", leaf=True))


def _refusal(error: type[TelegradError], talk: Talk, step: verbs.Step) -> str:
    """The message; the error and its traceback are gone afterwards, and with them what they refer to."""
    gc.disable()
    try:
        run(talk, step)
    except error as refused:
        return refused.message
    finally:
        gc.enable()
    raise AssertionError("it was not refused")


@pytest.mark.parametrize(
    ("step", "error", "text"),
    [
        (op("ad", 1), ArgumentError, "there is no operation 'ad'; did you mean"),
        (op("nn.mm", t(1), t(1)), ArgumentError, "there is no operation"),
        (op("mm", t(1), t(1)), ShapeError, "cannot multiply float32\\[2,3\\]"),
        (op("mm", t(1), t(77)), UnknownIdError, "77"),
        (op("mm", t(1)), ArgumentTypeError, "missing argument 'mat2'"),
        (op("mm", t(1), t(1), mats=2), ArgumentTypeError, "'mats' is unknown"),
        (op("mm", t(1), 2), ArgumentTypeError, "'mat2' must be a tensor"),
        (op("add", t(1), {"a": 1}), ArgumentTypeError, "'other' must be"),
        (op("add", t(1), [1]), ArgumentTypeError, "'other' must be"),
        (op("zeros", 2, dtype="float31"), DTypeError, "unknown dtype 'float31'"),
        (op("zeros", 2, device="cuda:9"), DeviceError, "not available"),
        (op("zeros", 2, device="tpu"), ArgumentError, "Expected one of cpu, cuda"),
        (op("zeros", -1), ArgumentError, "negative"),
        (op("zeros", 2**62), ShapeError, "beyond"),
        (op("zeros", 2**44), OutOfMemoryError, "out of memory"),
        (op("zeros", [1] * 1000), ShapeError, "64 dimensions"),
        (op("zeros", 2**64), ArgumentError, "64 bits"),
        (op("zeros", 2.5), ArgumentTypeError, "'size' must be"),
        (op("neg", t(1), out=(4, 5)), ArgumentError, "'out' names 2 tensors, the results are 1"),
        (RunOp("t", [t(1)], {"out": t(1)}, None, False), ArgumentTypeError, "takes no argument 'out'"),
        (op("index_select", t(1), 0, t(2)), IndexOutOfRangeError, ""),
        (op("add_", t(3), 1), InplaceError, "leaf"),
        (op("as_strided", t(1), [7], [1]), ShapeError, "storage has 24"),
        (op("sum", t(1), dim="x"), ArgumentTypeError, "'dim'"),
        (NewTensor(9, "float32", (2, 2), "", b"\0" * 15, False), ProtocolError, "16 bytes is 1 short"),
        (NewTensor(9, "float32", (2, 2), "", b"\0" * 17, False), ProtocolError, "upload of 16 bytes"),
        (NewTensor(9, "float31", (2, 2), "", b"", False), DTypeError, "float31"),
        (NewTensor(9, "float32", (-2,), "", b"", False), ArgumentError, "negative"),
        (NewTensor(9, "int64", (), "", b"\0" * 8, True), DTypeError, "require grad"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    talk: Talk, step: Any, error: type[TelegradError], text: str
) -> None:
    run(talk, new(1, X), new(2, np.array([7])), new(3, X, leaf=True))
    before, held = talk.contents(), talk.held()
    assert re.search(text, _refusal(error, talk, step))
    assert talk.contents() == before
    assert talk.held() == held
    assert talk.session.state.failure == 0


def test_an_error_says_which_step_failed_and_the_results_before_it_remain(talk: Talk) -> None:
    with pytest.raises(ShapeError) as caught:
        ask(talk, RunOps(3, [new(1, X), op("neg", t(1), out=2), op("mm", t(1), t(2), out=3), op("neg", t(1), out=4)]))
    error = caught.value
    assert (error.site, error.operation, error.operands) == ("ops[5]", "mm", "float32[2,3], float32[2,3]")
    assert set(talk.session.state.values) == {1, 2}


@pytest.mark.parametrize("debugging", [False, True])
def test_a_defect_is_an_internal_error_with_its_place(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, debugging: bool
) -> None:
    from server.engine.operators import OPERATORS

    monkeypatch.setenv("TELEGRAD_DEBUG", str(int(debugging)))
    OPERATORS["neg"].clear_caches()  # with what was remembered of calls before
    monkeypatch.setattr(OPERATORS["neg"], "resolved", {key: lambda *_: 1 // 0 for key in range(256)})
    with pytest.raises(TelegradError) as caught:
        run(talk, new(1, X), op("neg", t(1)))
    assert (caught.value.code, caught.value.site) == ("InternalError", "ops[1]")
    told = [(r.__dict__["defect"], "ZeroDivisionError" in str(r.exc_info)) for r in caplog.records if r.msg == "defect"]
    caplog.clear()  # the tracebacks in it hold values of the session
    ((number, is_whole),) = told
    assert is_whole
    if debugging:
        assert "neg: ZeroDivisionError: " in caught.value.message
    else:
        assert caught.value.message == f"neg: a defect of the server (ZeroDivisionError); its log has more, as {number}"


def test_operations_are_counted(talk: Talk) -> None:
    before = sum(talk.host.control(None, "counters", []).values())
    run(talk, new(1, X), op("neg", t(1)), op("neg", t(1)))
    talk.send(call("neg", 50, 1))
    assert sum(talk.host.control(None, "counters", []).values()) == before + 3


def backward(talk: Talk, *roots: int, **rest: Any) -> Any:
    options = {"gradients": (None,) * len(roots), "inputs": None, "retain_graph": False, "create_graph": False} | rest
    return ask(talk, verbs.Backward(roots, **options), list[tuple[int, verbs.TensorInfo]])


def _loss(talk: Talk) -> None:
    """Tensor 9 = sum(1 * 2 + 3): of the leaves 1, 2 and 3, the last has no name."""
    run(
        talk, new(1, X, leaf=True), new(2, 2 * X, leaf=True), new(3, X, leaf=True), new(4, X, leaf=True),
        op("mul", t(1), t(2), out=5), op("add", t(5), t(3), out=6), op("sum", t(6), out=9),
    )  # fmt: skip
    ask(talk, verbs.Free((3, 5, 6)))


def test_backward_names_the_gradients_of_the_leaves_it_reaches(talk: Talk) -> None:
    _loss(talk)
    (one, first), (two, second) = backward(talk, 9)
    assert (one, two) == (1, 2)
    np.testing.assert_array_equal(read(talk, first.id), 2 * X)
    np.testing.assert_array_equal(read(talk, second.id), X)


def test_gradients_accumulate_under_the_same_name(talk: Talk) -> None:
    _loss(talk)
    before = backward(talk, 9, retain_graph=True)
    assert backward(talk, 9) == before
    np.testing.assert_array_equal(read(talk, before[0][1].id), 4 * X)
    with pytest.raises(AutogradError, match="second time"):
        backward(talk, 9)


def test_backward_of_inputs_reaches_these_alone(talk: Talk) -> None:
    _loss(talk)
    ((leaf, _),) = backward(talk, 9, inputs=(2, 4))
    assert leaf == 2
    assert talk.session.state.value(1).autograd.grad is None


def test_backward_with_a_gradient_and_a_graph(talk: Talk) -> None:
    run(talk, new(1, X, leaf=True), op("mul", t(1), t(1), out=2), new(3, 3 * X))
    ((_, first),) = backward(talk, 2, gradients=(3,), create_graph=True, retain_graph=True)
    assert first.requires_grad
    np.testing.assert_array_equal(read(talk, first.id), 6 * X * X)


@pytest.mark.parametrize(
    ("roots", "rest", "error"),
    [
        ((1,), {}, AutogradError), ((9, 9), {"gradients": (None,)}, ArgumentError), ((77,), {}, UnknownIdError),
        ((9,), {"gradients": (1,)}, ShapeError), ((8,), {}, AutogradError), ((9,), {"inputs": (8,)}, AutogradError),
    ],
)  # fmt: skip
def test_a_backward_that_cannot_be_is_refused(talk: Talk, roots: Any, rest: Any, error: type[TelegradError]) -> None:
    _loss(talk)
    run(talk, new(8, X[0, 0]))
    with pytest.raises(error):
        backward(talk, *roots, **rest)
