"""Errors as problem documents."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from server.gateway.problems import problem_response, status_of
from server.ipc.logs import JsonFormatter
from telegrad_protocol.errors import BY_CODE, revive

from .conftest import Client, Http

STATUSES = {
    "TelegradError": 422, "ShapeError": 422, "DTypeError": 422, "DeviceError": 422, "DimensionError": 422,
    "IndexOutOfRangeError": 422, "ArgumentError": 422, "ArgumentTypeError": 422, "LinearAlgebraError": 422,
    "AutogradError": 409, "InplaceError": 409, "NotComputedError": 409, "HandshakeError": 409,
    "StateDictError": 422, "OutOfMemoryError": 507, "LimitExceededError": 413, "NotSupportedError": 501,
    "InternalError": 500, "ConfigurationError": 500, "OperatorError": 422, "NotAllowedError": 403,
    "CompilationError": 422, "ProgramError": 422, "ExtensionError": 422, "ExtensionKeyError": 422,
    "ExtensionAttributeError": 422, "ExtensionImportError": 422, "ExtensionBufferError": 422,
    "ExtensionOverflowError": 422, "ExtensionMemoryError": 422, "ExtensionStopIteration": 422, "ToolkitError": 501,
    "AuthenticationError": 401, "ProtocolError": 400, "RequestError": 400, "UnknownIdError": 404,
    "SessionLostError": 410, "SessionDetachedError": 410, "SessionInUseError": 409,
    "CommunicationError": 503, "ConnectError": 503, "WorkerCrashedError": 503, "AcceleratorError": 500,
    "CaptureError": 409, "ProgramMismatchError": 422,
    "SynchronizationError": 409,
}  # fmt: skip


def test_every_error_has_a_status_and_can_be_made_again_from_its_document() -> None:
    assert STATUSES.keys() == BY_CODE.keys()
    for code, status in STATUSES.items():
        error = revive(code, "it: is wrong", "it", "float32[2]", "ops[0]", "trace")
        assert status_of(error) == status
        document: dict[str, Any] = json.loads(problem_response("/here", error).body)
        assert document["type"] == f"urn:telegrad:{code}"
        assert (document["status"], document["detail"], document["instance"]) == (status, "it: is wrong", "/here")
        again = revive(document["code"], document["detail"], document["operation"], document["operands"])
        assert type(again) is type(error)
        assert document["server_traceback"] == "trace"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("PUT", "/v1/sessions", 405), ("PATCH", "/healthz", 405)],
)
def test_errors_of_the_framework_are_problem_documents(http: Http, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "RequestError"
    assert answer.json()["title"] == "The server has no such endpoint, or it does not take the request in this form"
    assert answer.json()["detail"].startswith(f"{method} {path}: ")


@pytest.mark.parametrize("body", [b"{", b"[1", b"\xff\xfe", b"nul"])
def test_a_body_that_is_not_json_is_refused(client: Client, body: bytes) -> None:
    answer = client.call("POST", "/ops", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] in ("ArgumentError", "RequestError")


def test_a_validation_error_lists_where_and_what(client: Client) -> None:
    problem = client.ops({"op": "add", "out": -1, "nonsense": 1}).json()
    assert problem["code"] == "ArgumentError"
    assert {item["where"] for item in problem["errors"]} == {"body.0.operation.out.0", "body.0.operation.nonsense"}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_json_body_beyond_the_limit_is_refused(client: Client, chunked: bool) -> None:
    size = (8 << 20) + 1

    async def pieces() -> Any:
        for _ in range(9):
            yield b" " * (1 << 20)

    content = pieces() if chunked else b" " * size
    answer = client.call("POST", "/ops", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert "TELEGRAD_MAX_FRAME_BYTES" in answer.json()["detail"]
    assert answer.json()["code"] == "RequestError"


def test_a_defect_is_told_with_its_traceback_where_debugging_is_on(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.ops({"op": "boom"})
    problem = answer.json()
    (record,) = [record for record in caplog.records if record.message == "defect"]
    assert (answer.status_code, problem["code"]) == (500, "InternalError")
    assert "server_traceback" not in problem
    assert problem["detail"].endswith(f"(ZeroDivisionError); its log has more, as {record.__dict__['defect']}")
    monkeypatch.setenv("TELEGRAD_DEBUG", "1")
    problem = client.ops({"op": "boom"}).json()
    assert problem["detail"].startswith("ZeroDivisionError")
    assert "Traceback" in problem["server_traceback"]
    assert not re.findall(r'File "/', problem["server_traceback"])


def test_a_worker_that_is_gone_is_told_as_such(client: Client) -> None:
    client.registry.workers[0].alive = False
    answer = client.ops({"op": "zeros", "args": [1]})
    assert (answer.status_code, answer.json()["code"]) == (503, "WorkerCrashedError")


def test_a_log_record_is_one_line_of_json_with_its_fields() -> None:
    record = logging.makeLogRecord({"name": "server", "levelname": "INFO", "msg": "a\nb", "session": 3})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["event"], entry["session"], entry["level"], entry["logger"]) == ("a\nb", 3, "INFO", "server")
