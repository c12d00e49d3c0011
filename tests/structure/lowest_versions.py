"""Prints what pip is to install for tests with the lowest versions of all dependencies that both pyproject.toml admit.

``python tests/structure/lowest_versions.py`` prints one requirement a line: each run-time dependency at its lower
bound, with those of extras that need no GPU, then the test tools at the versions to which the ``dev`` extra pins them.
Uses the standard library alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN = "telegrad"
UNTESTED_EXTRAS = {
    "cuda": "needs a GPU",
    "profiling": "needs a GPU",
    "mkl": "make test-mkl installs it, 310 MB",
    "demo": "exact versions",
    "dev": "exact versions",
}
"""Extras whose lower bounds the tests with the lowest versions leave out, and why."""
TOOLS = ("hypothesis", "psutil", "pytest", "pytest-xdist")
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?(?P<versions>[^;]*)(?:;(?P<marker>.*))?")


def project(path: str) -> dict[str, Any]:
    """The ``project`` table of a ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return table


def at_lower_bound(requirement: str) -> str:
    """``name>=1.2,<3; marker`` as ``name==1.2; marker``; ValueError where it has no lower bound."""
    parts = REQUIREMENT.fullmatch(requirement)
    bound = re.search(r"[>=]=\s*([\w.]+)", parts["versions"]) if parts else None
    if parts is None or bound is None:
        raise ValueError(f"{requirement!r} has no lower bound")
    marker = f";{parts['marker']}" if parts["marker"] else ""
    return f"{parts['name']}=={bound[1]}{marker}"


def lowest_versions() -> Iterator[str]:
    """The requirements, without telegrad's own."""
    server, client = project("pyproject.toml"), project("client/pyproject.toml")
    extras = server["optional-dependencies"]
    chosen = [line for extra in extras.keys() - UNTESTED_EXTRAS for line in extras[extra]]
    for requirement in sorted({*server["dependencies"], *client["dependencies"], *chosen}):
        if not requirement.startswith(OWN):
            yield at_lower_bound(requirement)
    tools = {tool.partition("==")[0]: tool for tool in server["optional-dependencies"]["dev"]}
    yield from (tools[name] for name in TOOLS)


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
