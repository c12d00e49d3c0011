"""A real server, gateway and worker, that serves programs from files, without any client library."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from server.gateway.tenancy.tenants import digest
from tests.session.server import ServerProcess
from tests.support import plain_http
from tests.transport.waiting import wait_until

from .modules import CASES, dynamic, shape_of

NPY, SAFETENSORS = "application/x-npy", "application/vnd.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, host: Any) -> Path:
    """A directory with programs; what is wanted of them is computed by the modules."""
    import telegrad

    folder = tmp_path_factory.mktemp("programs")
    with telegrad.connect(in_process=host):
        for name in ("folding", "mlp", "recurrent", "with_state"):
            case = CASES[name]
            example = {key: telegrad.zeros(*shape_of(shape, case.example)) for key, shape in case.inputs.items()}
            module = case.make(telegrad).eval()
            program = telegrad.export.export(module, (), example, dynamic_shapes=dynamic(telegrad, case))
            telegrad.export.save(program, folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(PROGRAMS=str(folder), PROGRAM_UPLOADS=str(folder / "uploads")) as server:
        yield server


def _wanted(tg: Any, path: Path, inputs: dict[str, Any]) -> Any:
    given = {name: tg.tensor(array) for name, array in inputs.items()}
    return tg.export.load(path).module()(**given)


def test_programs_are_listed_and_described(server: ServerProcess) -> None:
    listed = server.http.get("/v1/programs").json()
    assert [(one["name"], one["owner"]) for one in listed] == [
        ("folding", "operator"), ("mlp", "operator"), ("recurrent", "operator"), ("with_state", "operator"),
    ]  # fmt: skip
    described = server.http.get("/v1/programs/recurrent").json()
    assert [(one["name"], one["dtype"], one["shape"]) for one in described["inputs"]] == [
        ("x", "float32", ["batch", 6, 3]), ("mask", "float32", ["batch", 6]),
    ]  # fmt: skip
    assert [one["name"] for one in described["outputs"]] == ["y", "state_0", "state_1"]
    assert described["sizes"] == [{"name": "batch", "min": 1, "max": None}]
    assert described["batch"] == 1  # the state has the batch in its second dimension


def test_answers_come_in_the_format_that_is_asked_for(
    tg: Any, server: ServerProcess, folder: Path, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((5, 4)).astype(np.float32)
    wanted = _wanted(tg, folder / "mlp.safetensors", {"input": x}).detach().numpy()
    answer = server.http.post("/v1/programs/mlp", json={"inputs": {"input": x.tolist()}})
    assert answer.headers["content-type"] == "application/json"
    np.testing.assert_allclose(answer.json()["outputs"]["output"], wanted, rtol=1e-5, atol=1e-6)
    body = io.BytesIO()
    np.save(body, np.asfortranarray(x))
    headers = {"Content-Type": NPY}
    answer = server.http.post("/v1/programs/mlp", content=body.getvalue(), headers=headers)
    np.testing.assert_allclose(np.load(io.BytesIO(answer.content)), wanted, rtol=1e-5, atol=1e-6)
    answer = server.http.post(
        "/v1/programs/mlp", content=body.getvalue(), headers=headers | {"Accept": f"text/html, {SAFETENSORS};q=0.5"}
    )
    assert answer.headers["content-type"] == SAFETENSORS
    np.testing.assert_allclose(_tensors(answer.content)["output"], wanted, rtol=1e-5, atol=1e-6)


def _tensors(body: bytes) -> dict[str, np.ndarray[Any, Any]]:
    (length,) = struct.unpack("<Q", body[:8])
    entries, data = json.loads(body[8 : 8 + length]), body[8 + length :]
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in entries.items()
    }


def _file(arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    entries, data = {}, b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        entries[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_several_tensors_come_and_go_as_safetensors(
    tg: Any, server: ServerProcess, folder: Path, rng: np.random.Generator
) -> None:
    arrays = {
        "mask": rng.integers(0, 2, (4, 6)).astype(np.float32), "x": rng.standard_normal((4, 6, 3)).astype(np.float32)
    }  # fmt: skip
    wanted = _wanted(tg, folder / "recurrent.safetensors", arrays)
    answer = server.http.post("/v1/programs/recurrent", content=_file(arrays), headers={"Content-Type": SAFETENSORS})
    found = _tensors(answer.content)
    for name, tensor in {"y": wanted["y"], "state_0": wanted["state"][0], "state_1": wanted["state"][1]}.items():
        np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_each_call_begins_with_the_state_of_the_file(server: ServerProcess) -> None:
    answers = [server.http.post("/v1/programs/with_state", json={"inputs": {"x": [[1, 2]]}}) for _ in range(3)]
    assert [answer.json() for answer in answers] == [answers[0].json()] * 3


def test_what_is_computed_once_is_right_for_every_call(
    tg: Any, server: ServerProcess, folder: Path, rng: np.random.Generator
) -> None:
    for rows in (3, 11):
        for _ in range(10):  # plainly, and optimised
            x = rng.standard_normal((rows, 4)).astype(np.float32)
            wanted = _wanted(tg, folder / "folding.safetensors", {"x": x})
            found = server.http.post("/v1/programs/folding", json={"inputs": {"x": x.tolist()}}).json()["outputs"]
            for name, tensor in wanted.items():
                np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=1e-4, atol=1e-3)


def test_a_call_may_have_no_rows(server: ServerProcess) -> None:
    for columns, kind in ((4, SAFETENSORS), (4, NPY)):
        empty = np.zeros((0, columns), np.float32)
        body = io.BytesIO()
        np.save(body, empty)
        content = body.getvalue() if kind == NPY else _file({"input": empty})
        for _ in range(3):
            answer = server.http.post("/v1/programs/mlp", content=content, headers={"Content-Type": kind})
            assert answer.status_code == 200, answer.text
            found = np.load(io.BytesIO(answer.content)) if kind == NPY else _tensors(answer.content)["output"]
            assert found.shape == (0, 3)
    answer = server.http.post("/v1/programs/mlp", json={"inputs": {"input": [[0, 0, 0, 0]]}})
    assert len(answer.json()["outputs"]["output"]) == 1


def test_large_inputs_and_outputs_go_in_pieces(server: ServerProcess, rng: np.random.Generator) -> None:
    x = rng.standard_normal((90_000, 4)).astype(np.float32)
    body = io.BytesIO()
    np.save(body, x)
    answer = server.http.post("/v1/programs/mlp", content=body.getvalue(), headers={"Content-Type": NPY})
    found = np.load(io.BytesIO(answer.content))
    assert found.shape == (90_000, 3)
    chosen = [0, 30_000, 65_535, 65_536, 89_999]
    few = server.http.post("/v1/programs/mlp", json={"inputs": {"input": x[chosen].tolist()}}).json()
    np.testing.assert_allclose(found[chosen], few["outputs"]["output"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "kind", "status", "said"),
    [
        (b'{"inputs": {}}', "application/json", 422, "the input 'input' is missing"),
        (b'{"inputs": {"input": [[1, 2, 3]]}}', "application/json", 422, "dimension 1 must be 4, not 3"),
        (b'{"inputs": {"input": [[1, 2], [3]]}}', "application/json", 422, "not nested evenly"),
        (b'{"inputs": {"input": "x"}}', "application/json", 422, "expected numbers"),
        (b'{"inputs": {"x": 1, "input": 2}}', "application/json", 422, "there is no input 'x'"),
        (b"[1]", "application/json", 422, "the body must be JSON such as"),
        (b'{"inputs": {"input": [[1, 2, 3, 4]]}, "more": 1}', "application/json", 422, "the body must be JSON such as"),
        (b'{"inputs": {"input": 1}}', "application/json", 422, "expected float32[batch, 4], got the shape []"),
        (b"nothing", NPY, 422, "bytes too early"),
        (b"\x93NUMPY\x01\x00\x04\x00{}  ", NPY, 422, "the header is malformed"),
        (struct.pack("<Q", 1 << 40), SAFETENSORS, 422, "no file of the format"),
        (struct.pack("<Q", 2) + b"{}", SAFETENSORS, 422, "the input 'input' is missing"),
        (b"x", "text/plain", 415, "application/json or what the endpoint names, got text/plain"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(
    server: ServerProcess, content: bytes, kind: str, status: int, said: str
) -> None:
    answer = server.http.post("/v1/programs/mlp", content=content, headers={"Content-Type": kind})
    problem = answer.json()
    assert (answer.status_code, said in problem["detail"]) == (status, True), problem


def test_requests_that_wait_run_together_and_a_wrong_one_alone(server: ServerProcess, rng: np.random.Generator) -> None:
    """Forty callers at once: one sends a shape that the program does not take, the others get their own rows."""
    rows = [rng.standard_normal((1 + number % 3, 4)).tolist() for number in range(40)]
    rows[7] = [[1.0, 2.0]]
    with plain_http.Client(base_url=server.url) as alone:
        wanted = [alone.post("/v1/programs/mlp", json={"inputs": {"input": row}}) for row in rows]
    found: list[Any] = [None] * len(rows)
    ready = threading.Barrier(len(rows))

    def call(number: int) -> None:
        with plain_http.Client(base_url=server.url, timeout=60) as client:
            client.get("/healthz")
            ready.wait()
            for _ in range(4):
                found[number] = client.post("/v1/programs/mlp", json={"inputs": {"input": rows[number]}})

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in found] == [422 if number == 7 else 200 for number in range(len(rows))]
    for answer, reference in zip(found, wanted, strict=True):
        if answer.status_code == 200:
            np.testing.assert_allclose(
                answer.json()["outputs"]["output"], reference.json()["outputs"]["output"], rtol=1e-5, atol=1e-6
            )
    metrics = server.http.get("/metrics").text
    batches = _metric(metrics, 'program_batch_requests_count{program="mlp"')
    requests = _metric(metrics, 'program_batch_requests_sum{program="mlp"')
    assert batches < requests, "no two requests ran together"
    assert _metric(metrics, 'program_requests_total{outcome="failed",program="mlp"') >= 5


def _metric(text: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"telegrad_{name}"))


def test_programs_are_uploaded_replaced_and_removed(server: ServerProcess, folder: Path) -> None:
    content = (folder / "mlp.safetensors").read_bytes()
    url, body = "/v1/programs/mine", {"inputs": {"input": [[1.0, 2.0, 3.0, 4.0]]}}
    assert server.http.post(url, json=body).status_code == 404
    made = server.http.put(url, content=content, headers={"Content-Type": SAFETENSORS})
    assert (made.status_code, made.json()["owner"], made.json()["parameters"]) == (201, "tenant", 83)
    assert server.http.post(url, json=body).json() == server.http.post("/v1/programs/mlp", json=body).json()
    recurrent = (folder / "recurrent.safetensors").read_bytes()
    assert server.http.put(url, content=recurrent, headers={"Content-Type": SAFETENSORS}).status_code == 200
    assert server.http.post(url, json=body).status_code == 422
    for damaged in (b"", content[:100], content[:-1], content.replace(b"gelu", b"nope")):
        refused = server.http.put(url, content=damaged, headers={"Content-Type": SAFETENSORS})
        assert (refused.status_code, refused.json()["code"]) == (422, "ProgramError")
    assert server.http.get(url).json()["outputs"][0]["name"] == "y"
    taken = server.http.put("/v1/programs/mlp", content=content, headers={"Content-Type": SAFETENSORS})
    assert (taken.status_code, "choose another name" in taken.json()["detail"]) == (422, True)
    assert server.http.delete("/v1/programs/mlp").status_code == 403
    assert server.http.delete(url).status_code == 204
    assert (server.http.get(url).status_code, server.http.delete(url).status_code) == (404, 404)
    assert server.http.get("/v1/programs/..%2fmlp").status_code == 404


def test_a_file_that_is_replaced_is_served_anew(server: ServerProcess, folder: Path) -> None:
    swapped, body = folder / "swapped.safetensors", {"inputs": {"input": [[1.0, 2.0, 3.0, 4.0]]}}
    shutil.copy(folder / "mlp.safetensors", swapped)
    assert server.http.post("/v1/programs/swapped", json=body).status_code == 200
    shutil.copy(folder / "recurrent.safetensors", folder / ".new")
    os.replace(folder / ".new", swapped)
    assert server.http.post("/v1/programs/swapped", json=body).status_code == 422
    swapped.unlink()
    assert server.http.post("/v1/programs/swapped", json=body).status_code == 404


def test_no_call_fails_while_a_program_is_replaced(server: ServerProcess, folder: Path) -> None:
    """What waits for a program that is replaced is answered by what takes its place."""
    content, url = (folder / "mlp.safetensors").read_bytes(), "/v1/programs/replaced"
    assert server.http.put(url, content=content, headers={"Content-Type": SAFETENSORS}).status_code == 201
    may_end, told = threading.Event(), list[tuple[int, str]]()

    def call() -> None:
        with plain_http.Client(base_url=server.http.base_url, timeout=60) as client:
            while not may_end.is_set():
                answer = client.post(url, json={"inputs": {"input": [[0.0] * 4]}})
                told.append((answer.status_code, answer.text))

    with ThreadPoolExecutor(8) as pool:
        callers = [pool.submit(call) for _ in range(8)]
        try:
            for _ in range(12):
                answer = server.http.put(url, content=content, headers={"Content-Type": SAFETENSORS})
                assert answer.status_code == 200
        finally:
            may_end.set()
        for caller in callers:
            caller.result()
    assert told and [one for one in told if one[0] != 200] == []
    assert server.http.delete(url).status_code == 204


def test_an_upload_of_another_type_is_refused_as_such(server: ServerProcess) -> None:
    answer = server.http.put("/v1/programs/other", content=b"{}", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (415, "NotSupportedError")


def test_json_of_many_elements_is_refused(server: ServerProcess) -> None:
    body = io.BytesIO()
    np.save(body, np.zeros((110_000, 4), np.float32))
    headers = {"Content-Type": NPY, "Accept": "application/json"}
    refused = server.http.post("/v1/programs/mlp", content=body.getvalue(), headers=headers)
    assert (refused.status_code, "too much for JSON" in refused.json()["detail"]) == (422, True)


def test_a_program_outlives_its_worker(server: ServerProcess) -> None:
    body = {"inputs": {"input": [[1.0, 2.0, 3.0, 4.0]]}}
    before = server.http.post("/v1/programs/mlp", json=body).json()
    (pid,) = {one["pid"] for one in server.http.get("/v1/devices").json()}
    os.kill(pid, 9)
    statuses = []
    while not statuses or statuses[-1] != 200:
        answer = server.http.post("/v1/programs/mlp", json=body)
        statuses.append(answer.status_code)
        assert answer.status_code in (200, 410, 503), answer.text
    assert answer.json() == before


def test_tenants_have_programs_of_their_own_within_limits(folder: Path, tmp_path: Path) -> None:
    content, body = (folder / "mlp.safetensors").read_bytes(), {"inputs": {"input": [[1.0, 2.0, 3.0, 4.0]]}}
    tables = {"alice": f"program_memory = {2 * len(content)}", "bob": "program_memory = 0", "carol": "sessions = 0"}
    file = tmp_path / "tenants.toml"
    file.write_text(
        "".join([f'[{name}]\ntoken_sha256 = "{digest(name * 3)}"\n{rest}\n' for name, rest in tables.items()])
    )
    given = {"PROGRAMS": str(folder), "PROGRAM_UPLOADS": str(tmp_path / "uploads"), "TENANTS": str(file)}
    with ServerProcess(**given) as server:

        def ask(who: str, method: str, path: str = "mine", **rest: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {who * 3}", "Content-Type": rest.pop("kind", SAFETENSORS)}
            headers |= rest.pop("more", {})
            return server.http.request(method, f"/v1/programs/{path}", headers=headers, **rest)

        assert server.http.get("/v1/programs").status_code == 401
        assert ask("alice", "PUT", content=content).status_code == 201
        assert ask("alice", "PUT", content=content).status_code == 200
        large = ask("alice", "PUT", "other", content=content + bytes(len(content)))
        assert (large.status_code, large.json()["code"]) == (413, "LimitExceededError")
        assert ask("alice", "DELETE").status_code == 204
        is_refused = threading.Event()

        def pieces() -> Iterator[bytes]:
            yield content
            is_refused.wait()
            yield bytes(1)

        length = {"Content-Length": str(len(content) + 1)}
        with ThreadPoolExecutor() as threads:
            slow = threads.submit(ask, "alice", "PUT", "slow", content=pieces(), more=length)
            wait_until(lambda: list((tmp_path / "uploads/alice").glob(".slow.*")), "the upload has begun")
            other = ask("alice", "PUT", "other", content=content + bytes(1))
            is_refused.set()
            assert (other.status_code, slow.result().status_code) == (413, 422), "it is too much, and no program"
        assert ask("alice", "PUT", content=content).status_code == 201, "what was refused holds nothing"
        assert ask("bob", "PUT", content=content).status_code == 403
        assert ask("bob", "GET").status_code == ask("bob", "DELETE").status_code == 404
        called = {who: ask(who, "POST", "mlp", kind="application/json", json=body) for who in tables}
        assert {answer.status_code for answer in called.values()} == {200}  # the operator is charged
        assert ask("alice", "POST", kind="application/json", json=body).json() == called["bob"].json()
        refused = ask("carol", "PUT", content=content)
        assert (refused.status_code, "sessions" in refused.json()["detail"]) == (503, True)
        assert [
            one["owner"]
            for one in server.http.get("/v1/programs", headers={"Authorization": "Bearer alicealicealice"}).json()
        ] == [
            "tenant" if name == "mine" else "operator" for name in ("folding", "mine", "mlp", "recurrent", "with_state")
        ]


@pytest.mark.gpu
def test_programs_of_a_cpu_are_served_by_a_gpu(
    tg: Any, cuda_device: str, folder: Path, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((70_000, 4)).astype(np.float32)
    wanted = _wanted(tg, folder / "mlp.safetensors", {"input": x}).detach().numpy()
    with ServerProcess(devices=cuda_device, PROGRAMS=str(folder)) as server:
        few = {"inputs": {"input": x[:3].tolist()}}
        for _ in range(12):  # plainly, and optimised
            answer = server.http.post("/v1/programs/mlp", json=few).json()
            np.testing.assert_allclose(answer["outputs"]["output"], wanted[:3], rtol=1e-3, atol=1e-4)
        body = io.BytesIO()
        np.save(body, x)
        answer = server.http.post("/v1/programs/mlp", content=body.getvalue(), headers={"Content-Type": NPY})
        np.testing.assert_allclose(np.load(io.BytesIO(answer.content)), wanted, rtol=1e-3, atol=1e-4)
        stats = server.http.get("/memory_stats").json()
        assert stats[cuda_device]["allocated_bytes.all.current"] > 0
