"""Headers that a CUDA text includes from directories of this machine: found by name, and sent along with the text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from telegrad_protocol.errors import ArgumentError

_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_FOLDER: Final = re.compile(r"(?:-I|--include-path[= ])\s*(.*)", re.DOTALL)
MAX_BYTES: Final = 4 << 20


def split_options(options: Iterable[str]) -> tuple[list[str], list[Path]]:
    """Return the compiler's options, and the folders that ``-I`` names among them."""
    rest, folders = [], []
    waiting = False
    for option in options:
        match = _FOLDER.fullmatch(option)
        if waiting:
            folders.append(Path(option))
            waiting = False
        elif option in ("-I", "--include-path"):
            waiting = True
        elif match is not None:
            folders.append(Path(match[1]))
        else:
            rest.append(option)
    return rest, folders


def headers_of(source: str, folders: Iterable[Path]) -> dict[str, str]:
    """Return the texts that a text includes, and those that these include, by name, as far as folders have them."""
    searched = list(folders)
    headers: dict[str, str] = {}
    texts = [source] if searched else []
    size = 0
    while texts:
        for name in _INCLUDE.findall(texts.pop()):
            path = next((folder / name for folder in searched if (folder / name).is_file()), None)
            if path is None or name in headers:
                continue
            headers[name] = text = path.read_text(errors="replace")
            texts.append(text)
            size += len(text)
            if size > MAX_BYTES:
                raise ArgumentError(f"include: more than {MAX_BYTES} bytes of headers; preprocess the text first")
    return headers
