"""CUDA C++ text of clients to machine code and PTX, with their options and headers. What was compiled last is kept.

Nothing is kept on the disk: that would be a place that tenants can fill. Knows no devices.
"""

from __future__ import annotations

import functools
from pathlib import Path

from cuda import pathfinder
from cuda.bindings import nvrtc

from server.engine.user_kernels.interface import Compiled, Text
from server.engine.user_kernels.text_rules import MAX_HEADERS, check_includes, check_options
from telegrad_protocol.errors import ArgumentError, CompilationError

_KEPT = 256
_OK = nvrtc.nvrtcResult.NVRTC_SUCCESS


def compile_text(text: Text, architecture: str) -> Compiled:
    """Compile a client's text for an architecture such as ``sm_90``; CompilationError with the log where it fails."""
    if len(text.headers) > MAX_HEADERS:
        raise ArgumentError(f"load module: at most {MAX_HEADERS} headers, not {len(text.headers)}")
    for name, source in ((text.file, text.source), *text.headers.items()):
        check_includes(name, source)
    options = check_options(text.options)
    headers = tuple(sorted(text.headers.items()))
    return _compile(text._replace(options=options, headers={}), headers, architecture)


def _compile(text: Text, headers: tuple[tuple[str, str], ...], architecture: str) -> Compiled:
    where = text.source, text.file, text.line, text.options, text.expressions
    return _compiled(*where, headers, architecture)


@functools.lru_cache(_KEPT)
def _compiled(
    source: str, file: str, line: int, given: tuple[str, ...], expressions: tuple[str, ...],
    headers: tuple[tuple[str, str], ...], architecture: str,
) -> Compiled:  # fmt: skip
    options = [f"--gpu-architecture={architecture}", "--no-source-include", *_include_options(), *given]
    if not any(option.lstrip("-").startswith("std=") for option in given):
        options.append("--std=c++17")
    names, texts = [name.encode() for name, _ in headers], [body.encode() for _, body in headers]
    begun = f'#line {line} "{_quoted(file)}"\n{source}'.encode()
    status, program = nvrtc.nvrtcCreateProgram(begun, b"kernel.cu", len(headers), texts, names)
    _check(status, "create program")
    try:
        for expression in expressions:
            (status,) = nvrtc.nvrtcAddNameExpression(program, expression.encode())
            _check(status, f"name expression {expression}")
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != _OK:
            raise CompilationError(f"the CUDA text does not compile:\n{_log(program)}")
        names_found = {expression: _lowered(program, expression) for expression in expressions}
        return Compiled(_get(program, "CUBIN"), _get(program, "PTX").rstrip(b"\0").decode(), names_found)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _quoted(file: str) -> str:
    return "".join(character for character in file if character.isprintable() and character not in '"\\')


def _lowered(program: object, expression: str) -> str:
    status, name = nvrtc.nvrtcGetLoweredName(program, expression.encode())
    _check(status, f"name of {expression}")
    return bytes(name).decode()


def _get(program: object, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(status, f"size of the {what}")
    data = bytearray(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    _check(status, what)
    return bytes(data)


def _log(program: object) -> str:
    return _get(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()


def _check(status: object, what: str) -> None:
    if status != _OK:
        raise CompilationError(f"NVRTC: {what}: {status}")


@functools.cache
def _include_options() -> tuple[str, ...]:
    """Return the directories of CUDA's own headers, those that there are."""
    return tuple(f"--include-path={folder}" for folder in _header_folders())


def _header_folders() -> list[str]:
    folders: dict[str, None] = {}
    for library in ("cudart", "cccl", "curand"):
        try:
            folder = pathfinder.find_nvidia_header_directory(library)
        except Exception:  # it is asked for libraries that it may not know
            folder = None
        if folder:
            folders[folder] = None
            if (Path(folder) / "cccl").is_dir():
                folders[str(Path(folder) / "cccl")] = None
    return list(folders)
