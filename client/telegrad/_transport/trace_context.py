"""The trace that this program belongs to, which a server goes on with (https://www.w3.org/TR/trace-context).

OpenTelemetry is looked at where the program has imported it, and never imported here.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

VARIABLE: Final = "TRACEPARENT"
"""Names the trace of a program that has no span of its own, as tools do that start programs."""
_FORM: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_headers() -> dict[str, str]:
    """Return the headers that name the current span; none where there is no trace."""
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is not None:
        span = opentelemetry.get_current_span().get_span_context()
        if span.is_valid:
            headers = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"}
            state = span.trace_state.to_header()
            return headers | ({"tracestate": state} if state else {})
    given = os.environ.get(VARIABLE, "")
    return {"traceparent": given} if _FORM.fullmatch(given) else {}
