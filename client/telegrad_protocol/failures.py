"""Failures as the errors that they tell of, and what a user can do about those that end a session."""

from __future__ import annotations

from typing import Final

from .errors import ProtocolError, SessionLostError, TelegradError, WorkerCrashedError, revive
from .messages import Failure, Site

_REMEDY: Final = "the session and its tensors are gone: connect() again, and load what you saved, such as a checkpoint"


def error_of(failure: Failure) -> TelegradError:
    """Return the error that the other end raised."""
    return revive(failure.code, failure.message, failure.operation, failure.operands, failure.site, failure.traceback)


def with_remedy(error: TelegradError) -> TelegradError:
    """Return the error that ends a session, with what its user can do."""
    for kind in (SessionLostError, WorkerCrashedError, ProtocolError):
        if isinstance(error, kind):
            return kind(f"{error.message}\n  {_REMEDY}")
    return error


def described(site: Site) -> str:
    """Return a line of a client's program as messages name it. Cells of notebooks are shown as IPython shows them."""
    if site.file.startswith("Cell "):
        function = "" if site.function == "<module>" else f", in {site.function}"
        return f"{site.file}, line {site.line}{function}"
    return f"{site.file}:{site.line} in {site.function}"
