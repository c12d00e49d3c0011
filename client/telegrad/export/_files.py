"""Writes programs to files and reads them: safetensors whose metadata has the description as JSON."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from telegrad._tensor.atomic_files import write_atomically
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, ProgramError
from telegrad_protocol.exported import container, description, files
from telegrad_protocol.exported.description import Held
from telegrad_protocol.exported.sizes import Formula

from ._exported import ExportedProgram
from ._module_calls import as_text, from_text
from ._opened_file import OpenedFile
from ._session import Upload
from ._trees import described, restored

_ALIASES: Final = "telegrad.aliases"
"""Under this name the metadata has further paths of tied tensors."""
_PARAMETERS: Final = "telegrad.parameters"
"""Under this name the metadata has the names of the positional arguments."""
_CALLS: Final = "telegrad.calls"
"""Under this name the metadata has the calls of modules that steps are in."""
_EXTRA: Final = "telegrad.extra."


def save(
    ep: ExportedProgram, f: str | os.PathLike[str] | io.IOBase, *, extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None, pickle_protocol: int = 2,
) -> None:  # fmt: skip
    """Write a program with its tensors to a file: a path, which appears complete or not at all, or a binary stream.

    ``extra_files`` are texts by name, which ``load`` gives back. The other parameters are PyTorch's and change nothing.
    """
    if not isinstance(ep, ExportedProgram):
        raise ArgumentTypeError(f"save: expected an ExportedProgram, not {type(ep).__name__}")
    if ep.reads:
        raise ProgramError(
            "save: the program reads elements, or has results of a length that elements decide, and a file has "
            "operations alone; call what `module()` returns, or save its state_dict"
        )
    if ep.is_edited:
        raise ProgramError("save: the graph of the program was edited; export what `module()` returns, and save that")
    program = replace(ep.description, arguments=described(*ep._arguments), results=described(*ep._results))
    metadata = {"format": "pt", files.KEY: description.encode(program).decode()}
    metadata[_PARAMETERS] = json.dumps(ep._parameters)
    if ep._calls is not None:
        metadata[_CALLS] = as_text(ep._calls)
    if ep._aliases:
        metadata[_ALIASES] = json.dumps(ep._aliases)
    for name, text in (extra_files or {}).items():
        metadata[_EXTRA + name] = text.decode() if isinstance(text, bytes) else str(text)
    tensors = program.tensors
    header = container.header(metadata, [(t.name, t.dtype, [int(n) for n in t.shape]) for t in tensors])  # type: ignore[arg-type]

    def write(file: Any) -> None:
        file.write(header)
        for held in tensors:
            file.write(_elements(ep, held))

    if hasattr(f, "write"):
        write(f)
        return
    write_atomically(os.path.realpath(os.fspath(f)), lambda path: _write_path(path, write))


def _write_path(path: str, write: Callable[[Any], None]) -> None:
    with open(path, "wb") as file:
        write(file)


def _elements(ep: ExportedProgram, held: Held) -> Any:
    source = ep._source(held) if held.value not in ep._tensors else ep._tensors[held.value]
    if isinstance(source, Tensor):
        return source._session.read(source._id)[2]
    return source.data if isinstance(source, Upload) else source


def load(
    f: str | os.PathLike[str] | io.IOBase, *, extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:  # fmt: skip
    """Read a program that ``save`` has written. Its tensors are brought to the server when they are first asked for.

    Raises ProgramError for a file that holds no program, or a damaged one.
    """
    opened = OpenedFile(io.BytesIO(f.read()) if hasattr(f, "read") else open(os.fspath(f), "rb"))  # noqa: SIM115
    contents, program = files.read(opened.file, opened.size)
    for name in extra_files or {}:
        extra_files[name] = contents.metadata.get(_EXTRA + name, "")  # type: ignore[index]
    aliases = _aliases(contents.metadata.get(_ALIASES, "{}"), {held.name for held in program.tensors})

    def source(held: Held) -> bytes:
        entry = contents.entries[held.name]
        return opened.read(contents.start + entry.begin, entry.nbytes)

    symbols = {symbol.name for symbol in program.symbols}
    arguments = _tree(program.arguments, len(program.inputs), symbols)
    results = _tree(program.results, len(program.outputs), symbols)
    parameters = _parameters(contents.metadata.get(_PARAMETERS), arguments[0])
    calls = from_text(contents.metadata.get(_CALLS), len(program.steps))
    return ExportedProgram(program, source, arguments, results, aliases, parameters=parameters, calls=calls)


def _parameters(text: str | None, structure: Any) -> list[str] | None:
    """Return the names of the positional arguments; None where the file has none, or none that fit."""
    try:
        names = json.loads(text or "null")
        is_whole = len(names) == structure.child(0).num_children and all([name.isidentifier() for name in names])
    except (ValueError, AttributeError, TypeError, RecursionError, IndexError):
        return None
    return [*names] if is_whole else None


def _tree(tree: Any, most: int, symbols: set[str]) -> Any:
    structure, leaves = restored(tree)
    unknown = {name for leaf in leaves if isinstance(leaf, Formula) for name in leaf.names()} - symbols
    if unknown:
        raise ProgramError(f"the structure of the program's arguments or results has no size {min(unknown)!r}")
    if sorted([leaf for leaf in leaves if type(leaf).__name__ == "Place"]) != [*range(most)]:
        raise ProgramError("the structure of the program's arguments or results does not name each tensor once")
    return structure, leaves


def _aliases(text: str, names: set[str]) -> dict[str, str]:
    try:
        aliases = json.loads(text)
        known = all([isinstance(path, str) and first in names for path, first in aliases.items()])
    except (ValueError, AttributeError, TypeError, RecursionError):
        known = False
    if not known:
        raise ProgramError("load: the paths of tied tensors are malformed")
    return aliases  # type: ignore[no-any-return]
