"""``load`` and ``load_inline``: extensions that are compiled while the program runs."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from weakref import WeakValueDictionary

from telegrad._library.registry import overload_of
from telegrad._session.current import current_session
from telegrad._session.session import ClientSession
from telegrad.library import Library
from telegrad_protocol.errors import ArgumentError, CompilationError, ExtensionError

from ._arguments import CLASS
from ._classes import add_member, classes_of
from ._functions import ExtensionFunction, Overload, Parameter, plain_value
from ._sources import Files, bindings, included_by, inline_sources, read_sources

_libraries: Final[dict[str, list[Library]]] = {}
"""By extension: its operators are there until it is loaded again, such as into another session."""
_modules: Final[WeakValueDictionary[tuple[Any, ...], ModuleType]] = WeakValueDictionary()
"""Modules by session and what they were made of; a module keeps its session, so that no other has its id."""
_versions: Final[Counter[str]] = Counter()


class ExtensionModule(ModuleType):
    """The module of an extension: its functions, and the attributes that its C++ has given it."""

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} (an extension on the server)>"


def load(
    name: str, sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None, extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None, verbose: bool = False, with_cuda: bool | None = None,
    with_sycl: bool | None = None, is_python_module: bool = True, is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:  # fmt: skip
    """Compile source files of this machine on the server, and return the module that they define.

    Files ending in ``.cu`` are compiled by nvcc. Headers that lie beside the sources or in ``extra_include_paths``
    travel with them. ``verbose`` prints what the compilers say; ``build_directory`` gets a copy of it. Without
    ``is_python_module`` the operators that the sources register are there afterwards, and nothing is returned.

    Raises CompilationError with the compiler's text, NotAllowedError where the server runs no code of its clients.
    """
    return _build(
        name, read_sources(sources), [], extra_cflags, extra_cuda_cflags, extra_ldflags,
        _paths(extra_include_paths), build_directory, verbose, bool(with_cuda), is_python_module, is_standalone,
    )  # fmt: skip


def load_inline(
    name: str, cpp_sources: str | Sequence[str], cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None, functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None, extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None, verbose: bool = False, with_cuda: bool | None = None,
    with_sycl: bool | None = None, is_python_module: bool = True, with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True, use_pch: bool = False, no_implicit_headers: bool = False,
) -> Any:  # fmt: skip
    """Compile texts on the server, and return a module with the functions that are named in ``functions``.

    ``functions`` may be a dict of docstrings by name. The texts begin with ``#include <torch/extension.h>`` by
    themselves, unless ``no_implicit_headers``; errors of the compiler name lines of the texts as they were given, in
    ``main.cpp`` and ``cuda.cu``. The rest is as for ``load``.
    """
    if sycl_sources:
        raise ArgumentError("load_inline: there are no SYCL devices; cuda_sources are for GPUs")
    begin = "" if no_implicit_headers else "#include <torch/extension.h>\n"
    cpp_texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    cuda_begin = begin and f"{begin}#include <cuda.h>\n#include <cuda_runtime.h>\n"
    sources = inline_sources(cpp_texts, "main.cpp", begin)
    if functions is not None:
        named = [functions] if isinstance(functions, str) else functions
        text = sources[0][1] if sources else begin
        sources = [("main.cpp", text + bindings(named))]
    sources += inline_sources(cuda_sources or [], "cuda.cu", cuda_begin)
    return _build(
        name, sources, [os.getcwd()], extra_cflags, extra_cuda_cflags, extra_ldflags,
        _paths(extra_include_paths), build_directory, verbose, bool(cuda_sources) if with_cuda is None else with_cuda,
        is_python_module, False,
    )  # fmt: skip


def _paths(given: Any) -> list[str]:
    listed = [] if given is None else [given] if isinstance(given, (str, os.PathLike)) else list(given)
    return [os.path.abspath(os.fspath(path)) for path in listed]


def _build(
    name: str, sources: Files, searched: list[str], cflags: Any, cuda_cflags: Any, ldflags: Any, paths: list[str],
    directory: Any, verbose: bool, with_cuda: bool, is_module: bool, is_standalone: bool,
) -> Any:  # fmt: skip
    if is_standalone:
        raise ArgumentError("load: a standalone program would run on the server; build it there")
    asked = request(sources, paths, cflags, cuda_cflags, ldflags, with_cuda)
    return load_request(name, asked, directory, verbose, is_module)


def request(
    sources: Files, paths: list[str], cflags: Any, cuda_cflags: Any, ldflags: Any, with_cuda: bool
) -> list[Any]:
    """Return what a server is asked to build: texts of sources and headers, and flags, as plain values."""
    headers = included_by(sources, paths)
    flags = [list(given or ()) for given in (cflags, cuda_cflags, ldflags)]
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    return [sources, headers, paths, *flags, with_cuda, architectures]


def load_request(
    name: str, asked: list[Any], directory: Any = None, verbose: bool = False, is_module: bool = True
) -> Any:
    """Have the current session's server build and load what is asked for, and return the module."""
    session, sources = current_session(), asked[0]
    key = (id(session), name, repr(asked))
    known = _modules.get(key)
    if known is not None:
        return known if is_module else None
    told = session.query("build_extension", name, *asked)
    if verbose and told["log"]:
        print(told["log"], file=sys.stderr, end="")
    if directory is not None:
        _write(Path(os.fspath(directory)), sources, told["log"])
    if told["error"] == "compile":
        said = [line for line in told["log"].splitlines() if not line.startswith("+ ")]
        raise CompilationError(f"Error building extension {name!r}:\n" + "\n".join(said))
    if told["error"]:
        raise ExtensionError(f"Error loading extension {name!r}: {told['log']}")
    module = _modules[key] = _module(session, name, told)
    return module if is_module else None


def _write(directory: Path, sources: Files, log: str) -> None:
    """Leave what was compiled, and what the compilers said, where the program wants to look at it."""
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in sources:
        if not os.path.isabs(path):
            (directory / path).write_text(text)
    (directory / "build.log").write_text(log)


def _module(session: ClientSession, name: str, told: dict[str, Any]) -> ExtensionModule:
    """Return the module of an extension; the second one of a name is called ``name_v1``, as in PyTorch."""
    version = _versions[name]
    _versions[name] += 1
    full = name if not version else f"{name}_v{version}"
    module = ExtensionModule(full, told["doc"] or None)
    for path, doc in told["modules"]:
        _place(module, path, ExtensionModule(f"{full}.{path}", doc or None))
    classes = classes_of(full, told["classes"])
    for made in sorted(classes.values(), key=lambda one: one._path.count(".")):
        _place(module, made._path, made)
    by_number = _functions(session, module, classes, told["functions"])
    _note_overrides(classes, told["classes"], by_number)
    for path, value in told["attributes"]:
        _place(module, path, plain_value(value, classes))
    _register(name, told["operators"], by_number)
    return module


def _place(module: ExtensionModule, path: str, value: Any) -> None:
    """Set what a path in the module names, such as ``Class.attribute``."""
    within, _, name = path.rpartition(".")
    owner = attrgetter(within)(module) if within else module
    if isinstance(value, type):
        if isinstance(owner, type):
            value.__qualname__ = f"{owner.__qualname__}.{name}"
        else:
            value.__module__ = owner.__name__
    setattr(owner, name, value)


def _note_overrides(classes: dict[int, type[Any]], told: list[Any], functions: dict[int, ExtensionFunction]) -> None:
    """Let classes with virtual methods tell C++ which of these a class of the program overrides."""
    notes = next((function for function in functions.values() if function.__name__ == "telegrad::overrides"), None)
    for made, (_, _, _, has_overrides, *_) in zip(map(classes.get, range(len(told))), told, strict=True):
        if has_overrides and made is not None:
            made._note_overrides = notes


def _functions(
    session: ClientSession, module: ExtensionModule, classes: dict[int, type[Any]], told: list[list[Any]]
) -> dict[int, ExtensionFunction]:
    """Give a module and its classes their functions, and return all by number; those of a name are one's overloads."""
    names = {f"{CLASS}{number}": f"{CLASS}{made._path}" for number, made in classes.items()}
    by_number, known = {}, dict[Any, ExtensionFunction]()
    for number, called, doc, result, is_exported, owner, role, *places, parameters in told:
        key = (owner, role, called if is_exported else number)
        function = known.get(key)
        if function is None:
            shown = module.__name__ if owner < 0 else f"{module.__name__}.{classes[owner].__name__}"
            within, _, name = called.rpartition(".") if is_exported else ("", "", called)
            shown = f"{shown}.{within}" if within else shown
            function = known[key] = ExtensionFunction(session, shown, name, doc, classes)
        listed = [
            Parameter(p, _named(kind, names), [plain_value(d, classes) for d in default])
            for p, kind, *default in parameters
        ]
        function.add(Overload(number, _named(result, names), listed, *places))
        by_number[number] = function
        if is_exported and owner < 0:
            _place(module, called, function)
        elif is_exported:
            add_member(classes[owner], function, role)
    return by_number


def _named(kind: str, names: dict[str, str]) -> str:
    """Return a type with the names of the classes in it, which C++ tells of by number."""
    return re.sub(rf"{CLASS}\d+", lambda match: names[match[0]], kind) if CLASS in kind else kind


def _register(extension: str, operators: list[list[Any]], functions: dict[int, ExtensionFunction]) -> None:
    """Define the operators of TORCH_LIBRARY, all of them before any is implemented, as telegrad.ops has them."""
    for earlier in _libraries.pop(extension, ()):
        earlier._destroy()
    kept = _libraries[extension] = []
    for space, schema, key, number, defines in sorted(operators, key=lambda entry: not entry[4]):
        library = Library(space, "FRAGMENT")
        kept.append(library)
        name = schema.partition("(")[0].strip()
        if defines:
            library.define(schema if "(" in schema else _schema(name, functions[number]))
        if number >= 0:
            qualname = name if "::" in name else f"{space}::{name}"
            library.impl(name, _in_order(qualname, functions[number]), key)


def _in_order(qualname: str, function: ExtensionFunction) -> Callable[..., Any]:
    """Return a kernel that gives a C++ function all arguments of the operator's schema by place, defaults too."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        overload = overload_of(qualname)
        if overload is None or (not kwargs and len(args) == len(overload._schema.arguments)):
            return function(*args, **kwargs)
        missing = overload._schema.arguments[len(args) :]
        return function(*args, *[kwargs.get(argument.name, argument.default_value) for argument in missing])

    return kernel


def _schema(name: str, function: ExtensionFunction) -> str:
    """Return the schema that C++ tells of a function without one."""
    overload = function._overloads[0]
    parameters = ", ".join(f"{_schema_type(p.type)} _{n}" for n, p in enumerate(overload.parameters))
    result = "()" if overload.result == "None" else _schema_type(overload.result)
    return f"{name}({parameters}) -> {result}"


def _schema_type(kind: str) -> str:
    if kind.startswith("Optional["):
        return f"{_schema_type(kind[9:-1])}?"
    if kind.startswith("List["):
        return f"{_schema_type(kind[5:-1])}[]"
    if kind.startswith("Tuple["):
        return f"({', '.join(_schema_type(part) for part in kind[6:-1].split(', '))})"
    return {"torch.Tensor": "Tensor", "Number": "Scalar", "torch.dtype": "ScalarType", "torch.device": "Device"}.get(
        kind, kind
    )
