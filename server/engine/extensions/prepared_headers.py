"""Headers that g++ has read once for a set of flags, so that it need not read them again for each source.

The first build with certain flags notes them; the next one prepares the headers, in some seconds, and those after it
begin with what was prepared. A few sets are kept, of some hundred megabytes each; the one whose last use is longest ago
goes first. Where g++ finds that something does not fit, it reads the headers themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Final

from telegrad_protocol.extension_messages import BuildExtension

from . import commands

MOST_KEPT: Final = 3
"""So many sets of prepared headers are kept on the disk."""
NAME: Final = "prefix.h"
TEXT: Final = "#include <torch/extension.h>\n"
_ENVIRONMENT: Final = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX")
"""Variables by which g++ finds other headers."""
_PAIRED: Final = ("-D", "-U", "-I", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-x", "-Xpreprocessor")
"""Options that say something of what a source begins with, or may have their argument behind them."""
_OWN_MACRO: Final = re.compile(r"-[DU](?!_|NDEBUG\b)")
_LINE: Final = re.compile(r'\s*#\s*(\w+)\s*(?:<([^>]+)>|"([^"]+)"|(.*))')


def flags_of(request: BuildExtension) -> list[str] | None:
    """Return the request's flags that headers are prepared with; None where they cannot be.

    Macros of the program's own are left out, since telegrad's headers and the standard ones do not know them.
    """
    flags = [flag for flag in request.cflags if not flag.startswith(("-I", "-W")) and not _OWN_MACRO.match(flag)]
    odd = [flag for flag in request.cflags if flag in _PAIRED or flag.startswith(("-include", "-imacros", "@"))]
    return None if odd or "Free Software Foundation" not in commands.versions(request)[0] else flags


def environment() -> list[str | None]:
    """Return what else prepared headers depend on: the variables that name directories of headers."""
    return [os.environ.get(name) for name in _ENVIRONMENT]


def beginning(request: BuildExtension) -> set[str]:
    """Return the names of the sources that could as well begin with telegrad's headers."""
    texts = {os.path.normpath(path): text for path, text in [*request.headers, *request.sources]}
    sources = [path for path, _ in request.sources if not path.endswith(commands.CUDA_SUFFIXES)]
    return {path for path in sources if _begins(os.path.normpath(path), texts, request.include_paths, ())}


def _begins(path: str, texts: dict[str, str], folders: list[str], within: tuple[str, ...]) -> bool:
    """Whether a file includes telegrad's headers before it says anything else than which standard ones it includes."""
    for line in _without_comments(texts[path]).splitlines():
        if not line.strip():
            continue
        match = _LINE.match(line)
        directive, system, own, rest = match.groups() if match else ("", None, None, None)
        if directive == "include":
            if _is_ours(system or own or ""):
                return True
            found = _found(system or own or "", path, texts, folders)
            if found is not None:
                return found not in within and _begins(found, texts, folders, (*within, path))
            if system is None or "/" in system:
                return False
        elif directive not in ("pragma", "ifndef") and not _is_guard(directive, rest):
            return False
    return False


def _is_guard(directive: str, rest: str | None) -> bool:
    """Whether a directive defines a name as nothing, as the guard of a header does."""
    return directive == "define" and re.fullmatch(r"\w+_H\w*", (rest or "").strip(), re.IGNORECASE) is not None


def _is_ours(name: str) -> bool:
    return bool(name) and (commands.INCLUDE / name).is_file()


def _found(name: str, path: str, texts: dict[str, str], folders: list[str]) -> str | None:
    """Return the client's name of a header as a file includes it; None where it is none of the client's."""
    for folder in (str(PurePosixPath(path).parent), *folders):
        candidate = os.path.normpath(os.path.join(folder, name))
        if candidate in texts:
            return candidate
    return None


def _without_comments(text: str) -> str:
    """Return a text without comments; texts in quotes may lose what looks like one, which no directive has."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def is_prepared(directory: Path) -> bool:
    """Whether headers were prepared in a directory, which is noted as used."""
    try:
        os.utime(directory / f"{NAME}.gch")
    except OSError:
        return False
    return True


def keep(made: Path, directory: Path) -> None:
    """Keep what a build has prepared, and forget the sets of headers that nobody has used for longest."""
    if not (made / f"{NAME}.gch").exists():
        return
    with contextlib.suppress(OSError):  # another worker may have prepared the same meanwhile
        made.rename(directory)
    kept = [path for path in directory.parent.glob("headers.*") if (path / f"{NAME}.gch").exists()]
    for path in sorted(kept, key=_last_use, reverse=True)[MOST_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _last_use(path: Path) -> float:
    try:
        return (path / f"{NAME}.gch").stat().st_mtime
    except OSError:
        return 0.0
