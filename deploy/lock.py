"""Writes the lock files of the image: every package that it installs, at one version, with the hashes of its files.

``make lock`` runs it with uv, which resolves for all platforms at once. It changes nothing but ``deploy/*.lock``.
"""

from __future__ import annotations

import argparse
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = "3.11"
"""The oldest version that the locks hold for; ``requires-python`` of both distributions."""
OWN: Final = ("telegrad", "telegrad-server")
VARIANTS: Final = {"cpu": ("otel",), "cuda": ("cuda", "profiling", "otel")}
"""The images, and the extras of ``telegrad-server`` that each has."""


def project(path: str) -> dict[str, Any]:
    """A ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((ROOT / path).read_text())
    return table


def requirements(extras: Sequence[str]) -> Iterator[str]:
    """What client and server need that is not of this repository, with these extras of the server."""
    server, client = project("pyproject.toml")["project"], project("client/pyproject.toml")["project"]
    chosen = [line for extra in extras for line in server["optional-dependencies"][extra]]
    for line in sorted({*server["dependencies"], *client["dependencies"], *chosen}):
        if not line.startswith(OWN):
            yield line


def build_requirements() -> Iterator[str]:
    """What builds the two distributions."""
    yield from sorted({*project("pyproject.toml")["build-system"]["requires"],
                       *project("client/pyproject.toml")["build-system"]["requires"]})  # fmt: skip


def lock_files() -> dict[str, list[str]]:
    """What each lock file has to hold, by its name."""
    locks = {f"requirements-{name}.lock": list(requirements(extras)) for name, extras in VARIANTS.items()}
    return locks | {"requirements-build.lock": list(build_requirements())}


def compile_lock(uv: str, name: str, wanted: list[str], upgrade: bool) -> None:
    """Have uv write one lock file; versions that are in it stay, where they fit, unless they are to be upgraded."""
    target = ROOT / "deploy" / name
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON, "--generate-hashes",
               "--no-emit-index-url", "--no-annotate", "--custom-compile-command", "make lock",
               "--output-file", str(target), *(["--upgrade"] if upgrade else []), "-"]  # fmt: skip
    subprocess.run(command, input="\n".join(wanted), text=True, check=True, stdout=subprocess.DEVNULL)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--uv", default="uv", help="the uv command")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    chosen = parser.parse_args(argv)
    for name, wanted in lock_files().items():
        compile_lock(chosen.uv, name, wanted, chosen.upgrade)
        print(f"deploy/{name}: {len(wanted)} requirements")


if __name__ == "__main__":
    main()
