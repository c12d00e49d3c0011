"""The one table of requests that a session or a host answers: types of requests, and the functions that answer them.

A function is entered by ``@answers(RequestType)`` where it is defined; it gets the session's state, or the host, and
the request. Queries from the stream and control requests over HTTP both end in ``answer``. Knows no request by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from server.engine.device.interface import Mark
from telegrad_protocol.errors import ProtocolError

Request = TypeVar("Request", bound=msgspec.Struct)
Answer = TypeVar("Answer")
Function = Callable[[Any, Request], Answer]

_ANSWERS: dict[type[msgspec.Struct], Callable[[Any, Any], Any]] = {}


class Deferred(NamedTuple):
    """An answer that is due when devices have come to ``marks``; ``answer`` makes it then."""

    marks: list[Mark]
    answer: Callable[[], Any]


def answers(request: type[Request]) -> Callable[[Function[Request, Answer]], Function[Request, Answer]]:
    """Enter the decorated function as the one that answers requests of this type."""

    def enter(function: Function[Request, Answer]) -> Function[Request, Answer]:
        if request in _ANSWERS:
            raise TypeError(f"{request.__name__} is answered by {_ANSWERS[request].__qualname__} already")
        _ANSWERS[request] = function
        return function

    return enter


def answer(known: Mapping[str, type[msgspec.Struct]], owner: Any, name: str, args: Any) -> Any:
    """Return what ``owner`` answers to the request of this name; ``known`` has the types that may be asked here.

    Raises ``ProtocolError`` for a name that is not known, and for arguments that are not those of its type.
    """
    request = known.get(name)
    if request is None:
        raise ProtocolError(f"unknown request {name!r}; there are: {', '.join(known)}")
    try:
        asked = msgspec.convert(args, request, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{name}: {error}") from error
    return _ANSWERS[request](owner, asked)
