"""No module imports itself by any detour, whether it imports at the top, for types only, or inside a function."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "server": ROOT / "server",
    "telegrad": ROOT / "client/telegrad",
    "telegrad_protocol": ROOT / "client/telegrad_protocol",
}
OPTIONAL = frozenset(
    (
        "cupy",
        "cupyx",
        "cupy_backends",
        "cuda",
        "cudnn",
        "cupti",
        "nvmath",
        "pynvml",
        "tensorboard",
        "tensorboardX",
        "PIL",
        "google",
        "matplotlib",
        "triton",
        "llvmlite",
        "numba",
        "opentelemetry",
    )
)
"""What a machine without a GPU does not have: these, and modules that need them, may be imported inside functions."""


class Import(NamedTuple):
    """A statement that imports, and whether it stands in a function."""

    statement: ast.Import | ast.ImportFrom
    in_function: bool
    at_top: bool


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Names of the attributes of a syntax node that hold the statements within it."""


@cache
def imports_in(path: Path) -> tuple[Import, ...]:
    """All imports in the text of a module, which is parsed once for all tests; expressions have none."""
    return tuple(_imports_below(ast.parse(path.read_text()), in_function=False, at_top=True))


def _imports_below(node: ast.AST, *, in_function: bool, at_top: bool) -> Iterator[Import]:
    for block in BLOCKS:
        for statement in getattr(node, block, ()):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield Import(statement, in_function, at_top)
            else:
                is_function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from _imports_below(statement, in_function=in_function or is_function, at_top=False)


def modules_of(package: str, folder: Path) -> dict[str, Path]:
    """The modules of a package by their full names."""
    modules = {}
    for path in folder.rglob("*.py"):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_names(node: ast.Import | ast.ImportFrom, module: str, path: Path) -> list[str]:
    """The full names that a statement of a module imports: modules, or what is in them."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    origin = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{origin}.{alias.name}" for alias in node.names]


def imports_of(module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The known modules that a module imports anywhere in its text."""
    targets: set[str] = set()
    for node, _, _ in imports_in(path):
        if isinstance(node, ast.Import):
            targets.update(nearest for alias in node.names if (nearest := nearest_module(alias.name, known)))
        else:
            names = imported_names(node, module, path)
            targets.update(name if name in known else name.rpartition(".")[0] for name in names)
    # A package's own face is executed before its modules in any case: to name it is no detour.
    return {target for target in targets & known.keys() if target != module and not module.startswith(target + ".")}


def nearest_module(name: str, known: dict[str, Path]) -> str:
    """The module that ``import name`` executes last, as far as it is known; empty if it is not."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def graph_of(packages: dict[str, Path]) -> dict[str, set[str]]:
    """Which modules each module imports."""
    known = {name: path for package, folder in packages.items() for name, path in modules_of(package, folder).items()}
    return {module: imports_of(module, path, known) for module, path in known.items()}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """One circle of imports, the first module again at its end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        return circle
    return []


def test_there_is_no_circle_of_imports() -> None:
    assert circle_in(graph_of(PACKAGES)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from . import first",
        "if TYPE_CHECKING:\n    from .first import A",
        "def f():\n    from package.first import A",
        "def f():\n    import package.first",
    ],
)
def test_every_kind_of_import_makes_a_circle(tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "first.py").write_text("from .second import B\n")
    (folder / "second.py").write_text(statement)
    assert set(circle_in(graph_of({"package": folder}))) == {"package.first", "package.second"}


FOR_GPUS = "server.engine.cuda."
"""The kernels for GPUs, which are imported with the first CUDA device."""
LATE = {
    "server.__main__": "wrong settings are told before the application is imported, which takes a second",
    "server.worker.__main__": "garbage is not collected in what is imported, which would take a tenth of the start",
    "telegrad.__main__": "httpx takes longer to import than the rest of the command",
    "telegrad._session.connect": "HTTP and what starts servers would double the time of `import telegrad`",
    "telegrad._session.last_errors": "ctypes is for programs that fail after their last line",
    "telegrad_protocol.ops.reduce": "contracts are numbered in the order in which their modules are imported",
    "telegrad_protocol.ops.spread": "contracts are numbered in the order in which their modules are imported",
    "server.engine.array_library.special_functions": "scipy.special takes long to import, and few programs need it",
    "server.engine.array_library.host_libraries": "scipy.linalg and scipy.sparse take long, and few programs need them",
    "server.engine.array_library.fourier": "scipy.fft takes long to import, and few programs need it",
    "server.engine.compiled": "importlib.metadata takes a tenth of a worker's start, and only large operations need it",
    "server.gateway.http.tensor_streams": "NumPy takes a tenth of the gateway's start; lists of JSON need it",
    "server.gateway.http.routes.programs": "NumPy takes a tenth of the gateway's start; calls of programs need it",
    "server.gateway.http.programs.catalog": "contracts of operators are for files of programs, which few servers have",
}
"""Modules that import inside functions for another reason than an optional package, and the reason."""


def imports_inside_functions(module: str, path: Path) -> set[str]:
    """What a module imports inside functions: full names, of modules or of what is in them."""
    late = [found.statement for found in imports_in(path) if found.in_function]
    return {name for node in late for name in imported_names(node, module, path)}


def needs_an_optional_package(name: str, known: dict[str, Path]) -> bool:
    """Whether a name is of an optional package, or of a module that imports one at its top, directly or not."""
    waiting, met = [name], set()
    while waiting:
        current = waiting.pop()
        if current.partition(".")[0] in OPTIONAL or current.startswith(FOR_GPUS):
            return True
        module = nearest_module(current, known)
        if module and module not in met:
            met.add(module)
            at_top = [found.statement for found in imports_in(known[module]) if found.at_top]
            waiting += [alias for node in at_top for alias in imported_names(node, module, known[module])]
    return False


def test_functions_import_only_what_a_machine_without_a_gpu_lacks() -> None:
    known = {name: path for package, folder in PACKAGES.items() for name, path in modules_of(package, folder).items()}
    late = {
        (module, name)
        for module, path in known.items()
        for name in imports_inside_functions(module, path)
        if module not in LATE and not needs_an_optional_package(name, known)
    }
    assert late == set()


def test_every_exception_is_needed() -> None:
    known = {name: path for package, folder in PACKAGES.items() for name, path in modules_of(package, folder).items()}
    assert [module for module in LATE if not imports_inside_functions(module, known[module])] == []


def test_a_gateway_starts_without_what_only_some_requests_need() -> None:
    text = """
import sys
from server.gateway import app, serving, settings
app.create_app(settings.load_settings(devices="cpu"))
print(*sys.modules.keys() & {"numpy", "ml_dtypes", "telegrad_protocol.ops", "server.worker", "server.engine"})
"""
    assert subprocess.check_output([sys.executable, "-c", text], text=True).split() == []
