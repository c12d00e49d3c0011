"""Whatever comes over the wire, a session answers with one of our errors and keeps what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from telegrad_protocol import wire
from telegrad_protocol.errors import BY_CODE
from telegrad_protocol.messages import Call, Data, Failure, Free, Read, SetRequiresGrad
from telegrad_protocol.ops import BY_INDEX, TABLE

from .driver import Talk, call

QUOTA = 1 << 22
X = np.arange(6, dtype=np.float32).reshape(2, 3)
FUZZ = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def held(open_talk: Callable[..., Talk]) -> Talk:
    """A session with a leaf (1), a view of it (2), something computed (3), and indices (4)."""
    talk = open_talk(quota_bytes=QUOTA)
    talk.upload(1, X)
    talk.upload(4, np.array([1, 0]))
    talk.send(SetRequiresGrad(1, True), call("t", 2, 1), call("mul", 3, 1, 1))
    return talk


def _fails_and_goes_on(talk: Talk, before: dict[int, Any], replies: list[Any]) -> None:
    """Whatever the replies: known errors, nothing of what was there has changed, and the session works."""
    for reply in replies:
        if isinstance(reply, Failure):
            assert reply.code in BY_CODE
            assert reply.code != "InternalError", reply.traceback
    if talk.session.state.failure:
        talk.resume()
    after = talk.contents() if before else {}
    assert all(after[id] == picture for id, picture in before.items())
    np.testing.assert_array_equal(talk.read(1), X)


@FUZZ
@given(kind=st.integers(0, 255), body=st.binary(max_size=200))
def test_frames_of_any_bytes(held: Talk, kind: int, body: bytes) -> None:
    before = held.contents()
    held.put(kind, body)
    replies = held.replies()
    if replies or held.session.state.failure:
        _fails_and_goes_on(held, before, replies)


_numbers = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
_plain = st.none() | _numbers | st.text(max_size=5) | st.binary(max_size=5)
_anything = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)


any_batch = given(st.lists(st.lists(_anything, max_size=8), max_size=3))


def _send_any_batch(held: Talk, batch: list[Any]) -> None:
    before = held.contents()
    held.put(wire.BATCH, msgspec.msgpack.encode(batch))
    _fails_and_goes_on(held, before, held.replies())


@settings(FUZZ, max_examples=50)
@any_batch
def test_batches_of_any_values(held: Talk, batch: list[Any]) -> None:
    _send_any_batch(held, batch)


@pytest.mark.slow
@settings(FUZZ, max_examples=1000)
@any_batch
def test_many_batches_of_any_values(held: Talk, batch: list[Any]) -> None:
    _send_any_batch(held, batch)


@FUZZ
@given(
    st.integers(1, 15) | st.integers(22, 28),
    st.lists(st.integers(-1, 5) | st.lists(st.integers(-1, 5), max_size=3) | _anything),
)
def test_instructions_of_any_fields(held: Talk, tag: int, fields: list[Any]) -> None:
    held.put(wire.BATCH, msgspec.msgpack.encode([[tag, *fields]]))
    for reply in held.replies():
        assert not isinstance(reply, Failure) or (reply.code in BY_CODE and reply.code != "InternalError"), reply


@FUZZ
@given(head=st.binary(max_size=20), cut=st.integers(0, 60))
def test_truncated_batches(held: Talk, head: bytes, cut: int) -> None:
    before = held.contents()
    body = wire.encode_batch([call("zeros", 50, [2]), call("neg", 51, 1), Read(1, 3)])
    held.put(wire.BATCH, body[: min(cut, len(body) - 1)] + head)
    _fails_and_goes_on(held, before, held.replies())


_sizes = st.sampled_from([-1, 0, 1, 2, 3, 7, 65, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1])
_argument = st.one_of(
    st.sampled_from([1, 2, 3, 4, 99]), _sizes, st.lists(_sizes, max_size=4), st.none(), st.booleans(), st.floats(),
    st.sampled_from(["cpu", "cuda:0", "", "mean", "sum", "none", "tanh"]), st.integers(0, 12),
    st.lists(st.sampled_from([1, 2, 3, 4, 99, None]), max_size=3), st.tuples(st.floats()).map(list),
    st.tuples(st.floats(), st.floats()).map(list), _anything,
)  # fmt: skip


def _arguments_of(name: str) -> Any:
    kinds = [param.kind.name for param in TABLE[name].params]
    return st.tuples(st.just(name), st.tuples(*[_by_kind(kind) for kind in kinds]).map(list))


def _by_kind(kind: str) -> Any:
    """Mostly what fits the kind, so that shape rules and kernels are reached."""
    tensor = st.sampled_from([1, 2, 3, 4])
    fitting = {
        "tensor": tensor, "tensor|scalar": tensor | st.just([2.0]), "tensors": st.lists(tensor, max_size=3),
        "tensors?": st.lists(tensor | st.none(), max_size=3), "scalar": st.floats() | _sizes, "int": _sizes,
        "float": st.floats(), "bool": st.booleans(), "size": st.lists(_sizes, max_size=4),
        "int|size": _sizes | st.lists(_sizes, max_size=4), "scalars": st.lists(st.floats(), max_size=3),
        "dtype": st.integers(0, 11), "device": st.just("cpu"), "str": st.sampled_from(["mean", "sum", "none", "ij"]),
    }.get(kind.rstrip("?"), _argument)  # fmt: skip
    return st.one_of(fitting, fitting, fitting, st.none() if kind.endswith("?") else fitting, _argument)


PURE = sorted(op.name for op in BY_INDEX if not op.mutates)


any_call = given(st.sampled_from(PURE).flatmap(_arguments_of))


@settings(FUZZ, max_examples=400)
@any_call
@example(drawn=("_convolution_weight_backward", [1, 1, [], [], [], [], 0, False]))
def test_operations_on_any_arguments(held: Talk, drawn: tuple[str, list[Any]]) -> None:
    _make_any_call(held, *drawn)


@pytest.mark.slow
@settings(FUZZ, max_examples=5000)
@any_call
def test_many_operations_on_any_arguments(held: Talk, drawn: tuple[str, list[Any]]) -> None:
    _make_any_call(held, *drawn)


def _make_any_call(held: Talk, name: str, raw: list[Any]) -> None:
    before = held.contents()
    replies = held.send(Call(TABLE[name].index, 0, (60,), raw))
    _fails_and_goes_on(held, before, replies)
    held.send(Free([60]))


@pytest.mark.parametrize(
    ("size", "stride", "offset", "code"),
    [
        ([7], [1], 0, "ShapeError"), ([2, 3], [3, 2], 1, "ShapeError"), ([1], [1], 6, "ShapeError"),
        ([2], [2**40], 0, "ShapeError"), ([1], [1], 2**62, "ShapeError"), ([2**40], [0], 6, "ShapeError"),
        ([1], [2**63 - 1], 0, "ShapeError"), ([2], [-1], 1, "ShapeError"), ([2, 2], [1], 0, "ShapeError"),
        ([1], [1], -1, "ShapeError"), ([2**64 - 1], [1], 0, "ProtocolError"), ([-1], [1], 0, "ShapeError"),
    ],
)  # fmt: skip
def test_views_beyond_the_storage(held: Talk, size: list[int], stride: list[int], offset: int, code: str) -> None:
    before = held.contents()
    (failure,) = held.send(call("as_strided", 50, 1, size, stride, offset))
    assert failure.code == code
    _fails_and_goes_on(held, before, [failure])


def test_views_within_the_storage_are_what_numpy_shows(held: Talk) -> None:
    held.send(call("as_strided", 50, 1, [2, 2], [1, 2], 1))
    shown = np.lib.stride_tricks.as_strided(X.ravel()[1:], (2, 2), (4, 8))
    np.testing.assert_array_equal(held.read(50), shown)


@pytest.mark.parametrize(
    ("op", "raw", "text"),
    [
        (10**6, [], "there is no operation"), (-1, [], "there is no operation"),
        ("neg", [], "0 arguments, expected 1"), ("neg", [1, 1], "2 arguments"),
        ("neg", [None], "'input' must be a tensor"),
        ("neg", [[2.0]], "'input' must be a tensor"), ("neg", ["1"], "must be the number of a tensor"),
        ("neg", [1.0], "must be the number of a tensor"), ("neg", [True], "must be the number of a tensor"),
        ("cat", [1, 0], "must be a list of tensors"), ("cat", [[1, None], 0], "must be a list of tensors"),
        ("mul", [1, ["a", "b"]], "malformed"), ("zeros", [["2"], None, None], "expected an integer"),
        ("zeros", [[2], 99, None], "unknown dtype code"), ("zeros", [[2], "float32", None], "unknown dtype code"),
        ("sum", [1, 1.5, False, None], "expected a list"), ("mul", [1, {"a": 1}], "must be the number of a tensor"),
    ],
)  # fmt: skip
def test_malformed_calls_say_what_is_wrong(held: Talk, op: Any, raw: list[Any], text: str) -> None:
    index = op if isinstance(op, int) else TABLE[op].index
    (failure,) = held.send(Call(index, 0, (50,), raw))
    assert failure.code == "ProtocolError"
    assert text in failure.message


@pytest.mark.parametrize(
    ("op", "good", "raw", "code"),
    [
        ("neg", [1], [99], "UnknownIdError"), ("cat", [[1, 1], 0], [[1, 99], 0], "UnknownIdError"),
        ("cat", [[1, 1], 0], [[1, True], 0], "ProtocolError"), ("cat", [[1, 1], 0], [["1"], 0], "ProtocolError"),
        ("mul", [1, [2.0]], [1, ["2"]], "ProtocolError"), ("mul", [1, [2.0]], [1, []], "ProtocolError"),
        ("zeros", [[2], 0, None], [[2], 99, None], "ProtocolError"),
        ("zeros", [[2], None, None], [[2.0], None, None], "ProtocolError"),
        ("zeros", [[2], None, None], [[True], None, None], "ProtocolError"),
        ("zeros", [[2], None, None], [[2**63], None, None], "ProtocolError"),
        ("zeros", [[2], None, None], [[1] * 65, None, None], "ShapeError"),
    ],
)  # fmt: skip
def test_what_was_good_once_does_not_make_its_like_good(
    held: Talk, op: str, good: list[Any], raw: list[Any], code: str
) -> None:
    for _ in range(2):
        assert held.send(Call(TABLE[op].index, 0, (50,), good)) == []
    before = held.contents()
    (failure,) = held.send(Call(TABLE[op].index, 0, (51,), raw))
    assert failure.code == code
    _fails_and_goes_on(held, before, [failure])


@pytest.mark.parametrize("outs", [(), (50, 51), (50, 51, 52)])
def test_the_wrong_number_of_results_is_refused(held: Talk, outs: tuple[int, ...]) -> None:
    (failure,) = held.send(call("neg", outs, 1))
    assert failure.code == "ProtocolError"


def test_too_many_names_for_a_result_in_place_change_nothing(held: Talk) -> None:
    before = held.contents()
    replies = held.send(call("add_", (50, 51), 4, [1]))
    assert replies[0].code == "ProtocolError"
    _fails_and_goes_on(held, before, replies)


@pytest.mark.parametrize("shape", [[2**40], [2**62], [2**31, 2**31], [0, 2**62], [1] * 65, [2**20] * 5])
def test_huge_results_are_refused_before_they_are_made(held: Talk, shape: list[int]) -> None:
    (failure,) = held.send(call("zeros", 50, shape))
    assert failure.code in ("OutOfMemoryError", "ShapeError")


def test_ids_of_another_session_are_unknown(held: Talk, open_talk: Callable[..., Talk]) -> None:
    other = open_talk()
    for instruction in (Read(1, 1), call("neg", 2, 1)):
        (failure,) = other.send(instruction)
        assert failure.code == "UnknownIdError"
        other.resume()
    (data,) = held.send(Read(1, 1))
    assert isinstance(data, Data)


def test_a_result_that_is_refused_does_not_take_the_place_of_another(held: Talk) -> None:
    before = held.contents()
    replies = held.send(call("mm", 3, 1, 1))
    assert replies[0].code == "ShapeError"
    _fails_and_goes_on(held, before, replies)


@pytest.mark.parametrize("count", [wire.MOST_MALFORMED, wire.MOST_MALFORMED + 1, 100_000])
def test_a_batch_of_little_but_malformed_instructions_is_one_error_at_most(held: Talk, count: int) -> None:
    asked = wire.encoder.encode(Read(7, 1))
    body = msgspec.msgpack.encode([*[None] * count, msgspec.Raw(asked)])
    held.session.receive(wire.BATCH, memoryview(body))
    assert held.session.queued == (count + 1 if count <= wire.MOST_MALFORMED else 1)
    held.run()
    failures = held.replies()
    assert failures and all(isinstance(one, Failure) and one.code == "ProtocolError" for one in failures)
    _fails_and_goes_on(held, {}, failures)


def test_the_size_of_a_malformed_batch_counts_as_that_of_others(held: Talk) -> None:
    long = call("stack", 9, [1] * 2000, 0)
    counted = []
    for batch in ([long], [long, None]):
        before = held.session.state.host_memory.nodes
        held.session.receive(wire.BATCH, memoryview(msgspec.msgpack.encode(batch)))
        counted.append(held.session.state.host_memory.nodes - before)
        held.run()
        held.replies()
        if held.session.state.failure:
            held.resume()
    assert 0 < 0.9 * counted[0] < counted[1]


def test_what_is_asked_for_in_a_batch_with_a_malformed_instruction_is_answered(held: Talk) -> None:
    good, bad = call("mul", 5, 1, 1), SetRequiresGrad(5, 1)  # type: ignore[arg-type]
    replies = held.send(good, bad, call("mul", 6, 1, 1), Read(9, 5))
    failures = [reply for reply in replies if isinstance(reply, Failure)]
    assert [failure.request for failure in failures] == [None, 9]
    assert all("malformed instruction: Expected `bool`" in failure.message for failure in failures)
    held.resume()
    np.testing.assert_array_equal(held.read(5), X * X)
    assert 6 not in held.contents()
