"""A client that has only HTTP and JSON, against a real gateway and a real engine."""

from __future__ import annotations

import io
import json
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from .server import HttpSession, ServerProcess

NPY, SAFETENSORS, RAW = "application/x-npy", "application/vnd.safetensors", "application/octet-stream"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.fixture
def open_session(server: ServerProcess) -> Iterator[Callable[[], HttpSession]]:
    opened: list[HttpSession] = []

    def open_one() -> HttpSession:
        opened.append(HttpSession(server))
        return opened[-1]

    yield open_one
    for session in opened:
        server.http.delete(f"/v1/sessions/{session.id}", headers={"Telegrad-Session-Key": session.key})
    assert server.held() == 0


@pytest.fixture
def session(open_session: Callable[[], HttpSession]) -> HttpSession:
    return open_session()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def put(session: HttpSession, id: int, array: Any) -> Any:
    return session.call("PUT", f"/tensors/{id}", 201, content=npy(array), headers={"Content-Type": NPY}).json()


def get(session: HttpSession, id: int) -> Any:
    return np.load(io.BytesIO(session.call("GET", f"/tensors/{id}").content))


def new(id: int, data: Any, **rest: Any) -> dict[str, Any]:
    return {"op": "tensor", "data": data, "out": id, **rest}


def op(name: str, *args: Any, **rest: Any) -> dict[str, Any]:
    kwargs = {key: rest.pop(key) for key in list(rest) if key not in ("out", "values", "requires_grad")}
    return {"op": name, "args": list(args), "kwargs": kwargs, **rest}


def t(id: int) -> dict[str, int]:
    return {"tensor": id}


def test_operations_and_their_values(session: HttpSession) -> None:
    results = session.ops(
        new(1, [[1, 2], [3, 4]], dtype="float32"), op("mm", t(1), t(1), out=2, values=True),
        op("max", t(1), dim=1, values=True), op("add_", t(1), 1, values=True),
    )  # fmt: skip
    assert results[1][0] == {
        "id": 2, "dtype": "float32", "shape": [2, 2], "strides": [2, 1], "offset": 0, "device": "cpu",
        "requires_grad": False, "values": [[7.0, 10.0], [15.0, 22.0]],
    }  # fmt: skip
    assert [tensor["values"] for tensor in results[2]] == [[2.0, 4.0], [1, 1]]
    assert (results[3][0]["id"], results[3][0]["values"]) == (1, [[2.0, 3.0], [4.0, 5.0]])


def test_a_network_learns_over_http(session: HttpSession, rng: np.random.Generator) -> None:
    inputs, weight = rng.standard_normal((32, 4)), rng.standard_normal((4, 1))
    put(session, 1, inputs.astype(np.float32))
    put(session, 2, (inputs @ weight).astype(np.float32))
    session.ops(op("zeros", 4, 1, out=3, requires_grad=True))
    losses = []
    for _ in range(60):
        (*_, loss) = session.ops(
            op("mm", t(1), t(3), out=4), op("sub", t(4), t(2), out=5), op("mul", t(5), t(5), out=6),
            op("mean", t(6), out=7, values=True),
        )  # fmt: skip
        losses.append(loss[0]["values"])
        (gradient,) = session.call("POST", "/backward", json={"roots": 7}).json()["gradients"]
        assert gradient["leaf"] == 3
        slope = t(gradient["gradient"]["id"])
        session.ops(
            op("mul", slope, -0.1, out=8), op("detach", t(3), out=9), op("add_", t(9), t(8)), op("mul_", slope, 0)
        )
    assert losses[-1] < 0.01 * losses[0]
    np.testing.assert_allclose(get(session, 3), weight, atol=0.2)


def test_backward_answers_the_gradients(session: HttpSession) -> None:
    session.ops(
        new(1, [1.0, 2.0, 3.0], requires_grad=True), op("mul", t(1), t(1), out=2), op("sum", t(2), out=3),
    )  # fmt: skip
    body = {"roots": [3], "retain_graph": True, "values": True}
    (first,) = session.call("POST", "/backward", json=body).json()["gradients"]
    assert (first["leaf"], first["gradient"]["values"]) == (1, [2.0, 4.0, 6.0])
    (second,) = session.call("POST", "/backward", json=body).json()["gradients"]
    assert (second["gradient"]["id"], second["gradient"]["values"]) == (first["gradient"]["id"], [4.0, 8.0, 12.0])
    session.call("POST", "/backward", json={"roots": 3})
    assert session.call("POST", "/backward", 409, json={"roots": 3}).json()["code"] == "AutogradError"


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "float16"])
def test_npy_there_and_back(session: HttpSession, rng: np.random.Generator, dtype: str) -> None:
    array = (rng.standard_normal((3, 5)) * 3).astype(dtype)
    assert put(session, 4, array)["shape"] == [3, 5]
    np.testing.assert_array_equal(get(session, 4), array)


def test_column_major_npy_keeps_its_strides(session: HttpSession, rng: np.random.Generator) -> None:
    for id, shape in enumerate([(2, 3), (4, 3, 2), (5, 1), (0, 3), (7,)]):
        array = np.asfortranarray(rng.standard_normal(shape))
        told = put(session, id, array)
        assert (told["shape"] == list(shape) and told["strides"] == [n // 8 for n in array.strides]) or 0 in shape
        np.testing.assert_array_equal(get(session, id), array)


def test_a_small_tensor_goes_in_as_json(session: HttpSession) -> None:
    cases: list[tuple[Any, dict[str, str], str]] = [
        ([[1, 2], [3, 4]], {}, "int64"), ([1.5, "NaN"], {}, "float32"), ([True], {}, "bool"), (3, {}, "int64"),
        ([1, 2], {"dtype": "float16"}, "float16"), ([{"complex": [1, -1]}], {}, "complex64"),
    ]  # fmt: skip
    for data, params, dtype in cases:
        told = session.call("PUT", "/tensors/1", 201, json=data, params=params).json()
        assert told["dtype"] == dtype
        headers = {"Accept": "application/json"}
        assert session.call("GET", "/tensors/1", headers=headers).json()["values"] == data
    for text in ("[1, [2]]", "[1", "[" * 2000, '"word"'):
        status = 400 if text.startswith("[[") else 422
        session.call("PUT", "/tensors/1", status, content=text, headers={"Content-Type": "application/json"})


def test_a_failure_tells_no_code_and_no_file_of_the_server(session: HttpSession) -> None:
    problem = session.refused(404, op("mm", t(1), t(1)))
    assert "server_traceback" not in problem and not re.search(r"\.py\b|/(home|usr|tmp|opt|work)/", str(problem))


def test_many_megabytes_there_and_back(server: ServerProcess, session: HttpSession, rng: np.random.Generator) -> None:
    array = rng.random((3000, 700))
    put(session, 1, array)
    assert server.held(session.id) >= array.nbytes
    session.ops(op("t", t(1), out=2))
    np.testing.assert_array_equal(get(session, 2), array.T)
    raw = session.call("GET", "/tensors/1", headers={"Accept": RAW})
    assert (raw.headers["telegrad-dtype"], raw.headers["telegrad-shape"]) == ("float64", "3000,700")
    assert raw.content == array.tobytes()


def test_safetensors_there_and_back(session: HttpSession) -> None:
    session.ops(op("full", [2, 2], 1.5, dtype="bfloat16", out=1))
    content = session.call("GET", "/tensors/1", headers={"Accept": SAFETENSORS}).content
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    assert header["tensor"] == {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
    session.call("PUT", "/tensors/2", 201, content=content, headers={"Content-Type": SAFETENSORS})
    assert session.call("GET", "/tensors/2", headers={"Accept": "application/json"}).json()["values"] == [[1.5] * 2] * 2


def test_raw_bytes_there_and_back(session: HttpSession) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    params = {"dtype": "int16", "shape": "2,3"}
    session.call("PUT", "/tensors/1", 201, content=array.tobytes(), params=params, headers={"Content-Type": RAW})
    np.testing.assert_array_equal(get(session, 1), array)


@pytest.mark.parametrize(
    ("status", "code", "step"),
    [
        (422, "ShapeError", op("mm", t(1), t(1))), (404, "UnknownIdError", op("neg", t(5))),
        (422, "IndexOutOfRangeError", op("index_select", t(1), 0, t(2))), (422, "ArgumentTypeError", op("mm", t(1))),
        (422, "ArgumentError", op("no_such_operation")), (422, "DTypeError", op("zeros", 2, dtype="f")),
        (422, "DeviceError", op("zeros", 2, device="cuda:1")), (507, "OutOfMemoryError", op("zeros", 2**44)),
        (422, "ShapeError", op("as_strided", t(1), [9, 9], [1, 1])), (422, "ShapeError", op("zeros", 2**62)),
        (409, "InplaceError", op("zero_", t(3))),
    ],
)  # fmt: skip
def test_errors_are_problem_documents(session: HttpSession, status: int, code: str, step: dict[str, Any]) -> None:
    leaf = new(3, [1.0], requires_grad=True)
    first = [new(1, [[1.0, 2.0, 3.0]]), new(2, [5]), leaf]
    problem = session.refused(status, *first, step, op("neg", t(1), out=9))
    assert (problem["code"], problem["site"], problem["operation"]) == (code, "ops[3]", step["op"])
    assert problem["type"] == f"urn:telegrad:{code}"
    session.call("GET", "/tensors/9", 404)
    assert session.ops(op("neg", t(1), values=True))[0][0]["values"] == [[-1.0, -2.0, -3.0]]


def test_operands_are_told(session: HttpSession) -> None:
    problem = session.refused(422, new(1, [[1.0, 2.0]]), op("mm", t(1), t(1)))
    assert problem["operands"] == "float32[1,2]"
    assert problem["detail"] == (
        "mm: cannot multiply float32[1,2] by float32[1,2]: mat1 and mat2 shapes cannot be multiplied (1x2 and 1x2)"
    )


def test_memory_is_told_by_device_and_by_session(server: ServerProcess, session: HttpSession) -> None:
    put(session, 1, np.ones(1000))
    text = server.http.get("/memory_summary", params={"session": session.id}).text
    assert "telegrad memory summary, device cpu, session" in text
    assert "Allocated memory" in text
    assert server.held(session.id) == 8192
    snapshot = server.http.get("/memory_snapshot").json()
    assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == 8192
    (device,) = server.http.get("/v1/devices").json()
    assert (device["device"], device["allocated_memory"]) == ("cpu", 8192)
    assert device["pid"] in [worker.pid for worker in server.workers]
    assert "telegrad_operations_total" in server.http.get("/metrics").text


def test_after_a_session_is_closed_no_byte_is_left(server: ServerProcess, session: HttpSession) -> None:
    put(session, 1, np.ones(100_000))
    session.ops(
        new(2, [1.0, 2.0], requires_grad=True), op("mul", t(2), t(2), out=3), op("sum", t(3), out=4),
    )  # fmt: skip
    session.call("POST", "/backward", json={"roots": 4, "create_graph": True})
    session.refused(422, op("mm", t(1), t(2)))
    assert server.held() > 800_000
    session.close()
    assert server.held() == 0


def test_when_the_lease_ends_no_byte_is_left() -> None:
    with ServerProcess(LEASE_SECONDS="0.5") as server:
        session = HttpSession(server)
        put(session, 1, np.ones(100_000))
        deadline = time.monotonic() + 30
        while server.held():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        session.call("GET", "/tensors/1", 410)


def test_the_quota_of_the_settings_holds() -> None:
    with ServerProcess(SESSION_QUOTA_BYTES="1MiB") as server:
        session = HttpSession(server)
        problem = session.refused(507, op("zeros", 1 << 20))
        assert problem["code"] == "OutOfMemoryError"
        opened = server.http.post("/v1/sessions", json={"quota_bytes": 1 << 40}).json()
        session.id, session.key = opened["session"], opened["key"]
        session.refused(507, op("zeros", 1 << 20))


def test_equal_ids_of_two_sessions_are_different_tensors(open_session: Callable[[], HttpSession]) -> None:
    one, other = open_session(), open_session()
    one.ops(new(1, [1.0]))
    other.call("GET", "/tensors/1", 404)
    other.ops(new(1, [2.0]))
    assert get(one, 1) == [1.0]
    other.close()
    assert get(one, 1) == [1.0]
    one.call("GET", "/tensors/1", 403, headers={"Telegrad-Session-Key": other.key})


def test_a_client_that_leaves_in_the_middle_leaves_nothing(server: ServerProcess, session: HttpSession) -> None:
    def halves() -> Iterator[bytes]:
        yield npy(np.ones(1 << 20))[: 4 << 20]
        raise ConnectionAbortedError("the client is gone")

    with pytest.raises(ConnectionAbortedError):
        session.call("PUT", "/tensors/1", content=halves(), headers={"Content-Type": NPY})
    deadline = time.monotonic() + 30
    while server.held():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    session.call("GET", "/tensors/1", 404)


def test_several_clients_at_once(open_session: Callable[[], HttpSession]) -> None:
    failures: list[BaseException] = []

    def work(session: HttpSession, number: int) -> None:
        try:
            for _ in range(10):
                put(session, 1, np.full(1000, number, np.float32))
                session.ops(op("mul", t(1), 2, out=2))
                assert np.all(get(session, 2) == 2 * number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(open_session(), number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
