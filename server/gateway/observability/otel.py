"""Traces by OpenTelemetry's SDK, sent by OTLP over HTTP to the endpoint that the ``OTEL_*`` variables name.

The SDK collects spans and sends them in a thread of its own; no caller waits for it. Imported only where an endpoint is
configured.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import Scope

from server import __version__
from server.ipc.measures import InstructionFailed, SlowTurn

from .tracing import QUIET_PATHS, Tracing

STOP_SECONDS: Final = 3.0
"""How long the end of the server waits for what was not sent yet."""
REMEMBERED: Final = 256
"""Of so many sessions that have ended the trace is known: what a worker tells of them may come later."""
SPAN: Final = "telegrad.span"
"""Under this name the scope of a request has its span."""
_NANOSECONDS: Final = 1_000_000_000


class OtelTracing(Tracing):
    """Makes spans of requests, sessions, slow turns and failures."""

    def __init__(self) -> None:
        resource = Resource.create()
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "telegrad"}))
        resource = resource.merge(Resource({"service.version": __version__}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("telegrad", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._sessions: dict[str, Span] = {}
        self._contexts: OrderedDict[str, Context] = OrderedDict()
        """By session, to what its turns and failures belong."""

    def request_begins(self, scope: Scope) -> Any:
        """Begin a span, in the trace that the request names."""
        if scope["type"] != "http" or scope["path"] in QUIET_PATHS:
            return None
        span = self._tracer.start_span(scope["method"], self._context_of(scope), SpanKind.SERVER)
        scope[SPAN] = span
        return span

    def request_ends(self, request: Any, scope: Scope, route: str, status: int, about: dict[str, Any]) -> None:
        """End the span of a request."""
        if request is None:
            return
        span: Span = request
        span.update_name(f"{about['method']} {route}")
        span.set_attributes({
            "http.request.method": about["method"], "http.route": route, "http.response.status_code": status,
            "url.path": about["path"], "telegrad.request_id": about["request_id"],
        })  # fmt: skip
        told = {"tenant": "telegrad.tenant", "session": "telegrad.session", "code": "error.type"}
        told |= {"client": "client.address", "operation": "telegrad.operation"}
        span.set_attributes({name: about[key] for key, name in told.items() if about.get(key)})
        if status >= 500:
            span.set_status(StatusCode.ERROR, about.get("reason", ""))
        span.end()

    def session_opened(self, session: str, about: dict[str, Any], scope: Scope) -> None:
        """Begin the span of a session, as a part of the request that has opened it."""
        attributes = {"telegrad.session": session, **{f"telegrad.{name}": value for name, value in about.items()}}
        span = self._tracer.start_span("session", set_span_in_context(scope[SPAN]), attributes=attributes)
        self._sessions[session] = span
        self._contexts[session] = set_span_in_context(span)

    def session_connected(self, session: str, scope: Scope) -> None:
        """Let what follows belong to the trace that the handshake names, if that is another one."""
        span, context = self._sessions.get(session), self._context_of(scope)
        client = get_current_span(context).get_span_context()
        if span is not None and client.is_valid and client.trace_id != span.get_span_context().trace_id:
            span.add_link(client)
            self._contexts[session] = context

    def session_ended(self, session: str, reason: str) -> None:
        """End the span of a session."""
        span = self._sessions.pop(session, None)
        if span is None:
            return
        span.set_attribute("telegrad.reason", reason)
        span.end()
        self._contexts.move_to_end(session)
        while len(self._contexts) - len(self._sessions) > REMEMBERED:
            ended = next(one for one in self._contexts if one not in self._sessions)
            del self._contexts[ended]

    def turn(self, session: str, turn: SlowTurn) -> None:
        """Add the span of a turn that is over."""
        end = int(turn.end * _NANOSECONDS)
        span = self._span_of(session, "turn", end - int(turn.seconds * _NANOSECONDS), turn.operation, turn.site)
        span.end(end)

    def failure(self, session: str, failure: InstructionFailed) -> None:
        """Add a span without length, which tells of an error."""
        span = self._span_of(session, "failure", time.time_ns(), failure.operation, failure.site)
        span.set_attributes({"error.type": failure.code, "telegrad.count": failure.count})
        span.add_event("exception", {"exception.type": failure.code, "exception.message": failure.message})
        span.set_status(StatusCode.ERROR, failure.message)
        span.end()

    def stop(self) -> None:
        """Send what was not sent yet; an endpoint that does not answer is given up after ``STOP_SECONDS``."""
        for session in list(self._sessions):
            self.session_ended(session, "the server has ended")
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_SECONDS)

    def _context_of(self, scope: Scope) -> Context:
        headers = Headers(scope=scope)
        given = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        return self._propagator.extract(given, Context())

    def _span_of(self, session: str, name: str, begin: int, operation: str, site: str) -> Span:
        """Begin a span of a session. Its link leads to the session's, where it belongs to another trace."""
        context = self._contexts.get(session) or Context()
        own = self._sessions.get(session)
        inside = get_current_span(context)
        links = [] if own is None or own is inside else [Link(own.get_span_context())]
        attributes = {"telegrad.session": session, "telegrad.operation": operation, "telegrad.site": site}
        return self._tracer.start_span(name, context, SpanKind.INTERNAL, attributes, links, begin)
