"""What callers are told of the server itself, its files and what nobody foresaw: all with debugging on, else little.

Who runs the server finds the rest in its log, under the number that the caller was told.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import traceback
from typing import Final

from telegrad_protocol.errors import InternalError

VARIABLE: Final = "TELEGRAD_DEBUG"
"""Read by the gateway and by its workers, which inherit it."""

_PLACE: Final = re.compile(
    r'File "[^"]*?(?:(?:site|dist)-packages/|/lib/python3[^/"]*/|(?=(?:server|telegrad|telegrad_protocol)/))'
)
"""The beginning of a file's name up to the package that it is in, in a traceback."""
_ELSEWHERE: Final = re.compile(r'File "/[^"]*/')
_FOLDERS: Final = re.compile(r"(?:(?<![\w.>])|(?<=-I)|(?<=-L))/(?:[^\s/:;,'\"()=]+/)+")
"""The folders of an absolute path, wherever in a text it stands, also behind an option of a compiler."""

log = logging.getLogger(__name__)


def is_debugging() -> bool:
    """Whether callers are told all, as the operator has set it."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "t", "yes", "y", "on")


def traceback_for(error: BaseException) -> str:
    """Return the traceback that a caller gets, without the folders of this machine; empty unless debugging is on."""
    if not is_debugging():
        return ""
    text = "".join(traceback.format_exception(error))
    return _ELSEWHERE.sub('File "', _PLACE.sub('File "', text))


def without_folders(text: str) -> str:
    """Return what a tool or a library says about this machine's files, with their names alone."""
    return text if is_debugging() else _FOLDERS.sub("", text)


def defect(error: BaseException, operation: str = "") -> InternalError:
    """Return what a caller is told of an error that nobody foresaw; the log has it whole, under the same number."""
    number = secrets.token_hex(4)
    log.error("defect", exc_info=error, extra={"defect": number, "operation": operation})
    kind = type(error).__name__
    text = f"{kind}: {error}" if is_debugging() else f"a defect of the server ({kind}); its log has more, as {number}"
    return InternalError(f"{operation}: {text}" if operation else text)
