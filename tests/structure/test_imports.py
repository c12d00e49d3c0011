"""No module imports itself by any detour, whether it imports at the top, for types only, or inside a function."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "server": ROOT / "server",
    "telegrad": ROOT / "client/telegrad",
    "telegrad_protocol": ROOT / "client/telegrad_protocol",
}
OPTIONAL = frozenset(("cupy", "cupyx", "cuda", "cudnn", "nvmath"))
"""What a machine without a GPU does not have: these, and modules that need them, may be imported inside functions."""


def modules_of(package: str, folder: Path) -> dict[str, Path]:
    """The modules of a package by their full names."""
    modules = {}
    for path in folder.rglob("*.py"):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imports_of(module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The known modules that a module imports anywhere in its text."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    targets: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets.update(nearest for alias in node.names if (nearest := nearest_module(alias.name, known)))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                targets.add(submodule if submodule in known else origin)
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


def function_level_imports() -> list[tuple[str, str]]:
    """Every import inside a function: the module it stands in, and what it imports."""
    found = []
    for package, folder in PACKAGES.items():
        for module, path in modules_of(package, folder).items():
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.Import):
                            found += [(module, alias.name) for alias in node.names]
                        elif isinstance(node, ast.ImportFrom):
                            found.append((module, "." * node.level + (node.module or "")))
    return found
