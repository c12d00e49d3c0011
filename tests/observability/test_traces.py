"""Traces that a real server sends to a receiver of OTLP on loopback, and when it sends none."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider

import telegrad as tg
from server.gateway.observability import chosen_tracing as choosing
from server.gateway.observability.chosen_tracing import chosen_tracing
from server.gateway.observability.tracing import Tracing
from telegrad._transport.trace_context import trace_headers
from tests.support import plain_http

from ..end_to_end.server_process import ROOT, ServerProcess, clean_environment
from ..transport.waiting import wait_until
from .conftest import slow_turn

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Receiver:
    """Takes what is sent by OTLP over HTTP; ``answers`` False keeps the senders waiting until the end."""

    def __init__(self, answers: bool = True) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.requests = 0
        self._answers, self._over = answers, threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, path: str, body: bytes) -> None:
        self.requests += 1
        if not self._answers:
            self._over.wait()
            return
        assert path == "/v1/traces"
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({one.key: one.value.string_value for one in sent.resource.attributes})
            self.spans += [span for scope in sent.scope_spans for span in scope.spans]

    def named(self, name: str, **attributes: Any) -> list[Span]:
        """The spans of a name that have these attributes, in which ``__`` stands for a dot."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [span for span in self.spans if span.name == name and attributes_of(span).items() >= wanted.items()]


def attributes_of(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def sent(receiver: Receiver) -> Iterator[tuple[Receiver, Any, Any, str]]:
    """What a server has sent until it ended; the spans of two programs that used one session, and its id."""
    variables = {OTLP: receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_RESOURCE_ATTRIBUTES": "region=here"}
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("notebook")
    with ServerProcess(TELEGRAD_SLOW_SECONDS="0.01", **variables) as server:
        with tracer.start_as_current_span("first") as first:
            session = tg.connect(server.url)
            tg.ones(2).sum().item()
        with pytest.raises(tg.errors.IndexOutOfRangeError):
            tg.ones(3)[tg.tensor([7])].sum().item()
        slow_turn()
        id, key = session.id, session.key
        wait_until(lambda: receiver.named("failure") and receiver.named("turn"), "failure and turns were sent")
        session.detach()
        with tracer.start_as_current_span("second") as second:
            again = tg.connect(server.url, session=id, key=key)
        with pytest.raises(tg.errors.IndexOutOfRangeError):
            tg.ones(3)[tg.tensor([9])].sum().item()
        again.end()
        plain_http.get(f"{server.url}/healthz")
        other = {"traceparent": f"00-{7:032x}-{9:016x}-01", "X-Request-Id": "mine"}
        plain_http.get(f"{server.url}/v1/sessions/nobody/tensors/1", headers=other)
        tg.connect(server.url)  # the end of the server ends it
    with suppress(tg.errors.SessionLostError):  # the client may have heard of it already
        tg.disconnect()
    yield receiver, first, second, id


def test_a_notebooks_trace_goes_on_in_the_server(sent: tuple[Receiver, Any, Any, str]) -> None:
    receiver, first, second, id = sent
    mine, theirs = (span.get_span_context() for span in (first, second))
    (opening,) = [
        span for span in receiver.named("POST /v1/sessions") if span.trace_id == mine.trace_id.to_bytes(16, "big")
    ]
    assert opening.parent_span_id == mine.span_id.to_bytes(8, "big")
    assert attributes_of(opening)["http.response.status_code"] == 201 and opening.kind == Span.SPAN_KIND_SERVER
    (session,) = receiver.named("session", telegrad__session=id)
    assert (session.trace_id, session.parent_span_id) == (opening.trace_id, opening.span_id)
    assert (
        attributes_of(session)["telegrad.tenant"] == "local" and "closed" in attributes_of(session)["telegrad.reason"]
    )
    before, after = receiver.named("failure", telegrad__session=id)
    assert (before.trace_id, before.parent_span_id) == (session.trace_id, session.span_id)
    assert after.trace_id == theirs.trace_id.to_bytes(16, "big")
    assert after.parent_span_id == theirs.span_id.to_bytes(8, "big")
    assert [link.span_id for link in after.links] == [session.span_id]
    assert theirs.trace_id.to_bytes(16, "big") in [link.trace_id for link in session.links]


def test_failures_and_slow_turns_are_spans_with_operation_and_line(sent: tuple[Receiver, Any, Any, str]) -> None:
    receiver, *_, id = sent
    failure = receiver.named("failure", telegrad__session=id)[0]
    told = attributes_of(failure)
    assert (told["error.type"], told["telegrad.operation"]) == ("IndexOutOfRangeError", "index")
    assert __file__ in told["telegrad.site"] and failure.status.code == Status.STATUS_CODE_ERROR
    (event,) = failure.events
    assert attributes_of(event)["exception.type"] == "IndexOutOfRangeError"
    turns = [
        turn
        for turn in receiver.named("turn", telegrad__session=id)
        if "conftest" in attributes_of(turn)["telegrad.site"]
    ]
    (session,) = receiver.named("session", telegrad__session=id)
    assert turns and all(turn.end_time_unix_nano - turn.start_time_unix_nano >= 10_000_000 for turn in turns)
    assert all(session.start_time_unix_nano <= turn.end_time_unix_nano for turn in turns)


def test_requests_are_spans_but_for_probes(sent: tuple[Receiver, Any, Any, str]) -> None:
    receiver, *_ = sent
    (missing,) = receiver.named("GET /v1/sessions/{session_id}/tensors/{tensor_id}")
    assert missing.trace_id == (7).to_bytes(16, "big") and missing.parent_span_id == (9).to_bytes(8, "big")
    told = attributes_of(missing)
    assert (told["error.type"], told["telegrad.request_id"]) == ("UnknownIdError", "mine")
    assert not [span for span in receiver.spans if "healthz" in span.name or "metrics" in span.name]
    assert all(one["service.name"] == "telegrad" and one["region"] == "here" for one in receiver.resources)
    assert len(receiver.named("session", telegrad__reason="the server is shutting down")) == 1


def test_a_receiver_that_does_not_answer_holds_no_server() -> None:
    with Receiver(answers=False) as silent:
        variables = {OTLP: silent.url, "OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_EXPORTER_OTLP_TIMEOUT": "1000"}
        with ServerProcess(**variables) as server:
            with tg.connect(server.url):
                assert tg.ones(2).sum().item() == 2
            wait_until(lambda: silent.requests, "the first spans were sent")
        assert server.process.returncode == 0


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {OTLP: ""},
        {OTLP: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"},
        {OTLP: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
    ids=str,
)
def test_nothing_is_traced_unless_it_is_asked_for(variables: dict[str, str]) -> None:
    assert type(chosen_tracing(variables)) is Tracing


def test_without_the_sdk_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choosing, "_NEEDED", ("opentelemetry.nowhere", "nowhere.at.all"))
    assert type(chosen_tracing({OTLP: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})) is Tracing
    protocol, missing = caplog.records
    assert vars(protocol)["asked"] == "grpc" and protocol.levelno == logging.WARNING
    assert missing.getMessage() == "no traces: install telegrad-server[otel]"


def test_a_server_without_an_endpoint_imports_nothing_of_it() -> None:
    program = (
        "import sys; from server.gateway.app import create_app; from server.gateway.settings import Settings; "
        "create_app(Settings(devices='cpu')); "
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    environment = {name: value for name, value in clean_environment().items() if not name.startswith("OTEL_")}
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert answer.stdout.strip() == b"[]"


def test_the_client_names_the_trace_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert trace_headers() == {}
    for wrong in ("00-1-2-3", "x\r\nInjected: 1", f"00-{1:032x}-{2:016x}-01\n"):
        monkeypatch.setenv("TRACEPARENT", wrong)
        assert trace_headers() == {}
    given = f"00-{1:032x}-{2:016x}-01"
    monkeypatch.setenv("TRACEPARENT", given)
    assert trace_headers() == {"traceparent": given}
    state = trace.TraceState([("vendor", "x")])
    context = trace.SpanContext(5, 6, True, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert trace_headers() == {"traceparent": f"00-{5:032x}-{6:016x}-01", "tracestate": "vendor=x"}
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert trace_headers() == {"traceparent": given}
