"""What of an extension travels to the server: its sources, and the headers of the program's own that they include."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.extension_messages import MOST_BYTES

_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)

Files = list[tuple[str, str]]


def read_sources(sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Files:
    """Return the names and texts of source files."""
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    return [(str(path), path.read_text()) for path in (Path(os.path.abspath(os.fspath(s))) for s in listed)]


def included_by(sources: Files, include_paths: Sequence[str]) -> Files:
    """Return the files of this machine that sources include, and those that these include in turn.

    A name that is found neither beside the file that includes it nor in ``include_paths`` is left to the server.
    """
    headers: dict[str, str] = {}
    waiting = list(sources)
    while waiting:
        name, text = waiting.pop()
        folders = [os.path.dirname(name)] if os.path.isabs(name) else []
        for included in _INCLUDE.findall(text):
            path = next(filter(os.path.isfile, [os.path.join(f, included) for f in [*folders, *include_paths]]), None)
            if path is None or (path := os.path.normpath(path)) in headers:
                continue
            headers[path] = Path(path).read_text(errors="replace")
            waiting.append((path, headers[path]))
    total = sum(len(text) for _, text in [*sources, *headers.items()])
    if total > MOST_BYTES:
        raise ArgumentError(f"the extension's sources and headers have {total} characters, of {MOST_BYTES} at most")
    return list(headers.items())


def inline_sources(texts: str | Sequence[str], name: str, begin: str) -> Files:
    """Return one file of texts in a program; what compilers say of a line names the line of its text."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        return []
    parts = [begin]
    for number, text in enumerate(listed):
        shown = name if len(listed) == 1 else f"{name.partition('.')[0]}[{number}].{name.partition('.')[2]}"
        parts.append(f'#line 1 "{shown}"\n{text}\n')
    return [(name, "".join(parts))]


def bindings(functions: Sequence[str] | dict[str, str]) -> str:
    """Return the C++ that offers functions to Python, with their docstrings."""
    documented = functions if isinstance(functions, dict) else {name: name for name in functions}
    lines = [f'  m.def("{name}", &{name}, {_quoted(doc)});' for name, doc in documented.items()]
    body = "\n".join(lines)
    return f'#line 1 "functions.cpp"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{body}\n}}\n'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
