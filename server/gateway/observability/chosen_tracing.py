"""Which traces are made: those that the environment asks for, as OpenTelemetry names its variables."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from typing import Final

from .tracing import Tracing

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SENDS: Final = "http/protobuf"
_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

log = logging.getLogger(__name__)


def chosen_tracing(environ: Mapping[str, str] = os.environ) -> Tracing:
    """What makes traces where an endpoint is configured and the SDK installed; else what makes none."""
    endpoint = _first(environ, ENDPOINTS)
    switched_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not endpoint or switched_off or environ.get("OTEL_TRACES_EXPORTER", "") == "none":
        return Tracing()
    protocol = _first(environ, PROTOCOLS)
    if protocol not in ("", SENDS):
        log.warning("traces are sent by another protocol than asked for", extra={"asked": protocol, "sent": SENDS})
    if not all(map(_is_installed, _NEEDED)):
        log.warning("no traces: install telegrad-server[otel]", extra={"endpoint": endpoint})
        return Tracing()
    from .otel import OtelTracing

    return OtelTracing()


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of a package above it
        return False
