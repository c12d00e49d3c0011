"""What the image is made of: lock files that name every package, every version and every file's hash."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from deploy.lock import ROOT, VARIANTS, lock_files, project

from ..structure.lowest_versions import UNTESTED_EXTRAS, lowest_versions

HASHES = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
PYTHONS = ("3.11", "3.12", "3.13")


def entries(name: str) -> list[tuple[Requirement, str]]:
    """The packages of a lock file, each with the text of its hashes."""
    text = (ROOT / "deploy" / name).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    parts = [line.partition("--hash") for line in lines]
    return [(Requirement(package), mark + hashes) for package, mark, hashes in parts]


def versions(name: str, python: str) -> dict[str, Version]:
    """What a lock file installs on a Linux server with a GPU's processor, by canonical name."""
    environment = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "os_name": "posix",
        "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip
    installed = {}
    for package, _ in entries(name):
        if package.marker is None or package.marker.evaluate(environment):
            (pin,) = package.specifier
            assert canonicalize_name(package.name) not in installed, f"{name} has {package.name} twice"
            installed[canonicalize_name(package.name)] = Version(pin.version)
    return installed


@pytest.mark.parametrize("name", lock_files())
def test_every_package_of_a_lock_has_one_version_and_hashes(name: str) -> None:
    locked = entries(name)
    assert locked
    for package, hashes in locked:
        assert [pin.operator for pin in package.specifier] == ["=="] and package.url is None, package
        assert HASHES.findall(hashes) and not HASHES.sub("", hashes).strip(), f"{package.name} has no hashes"
    assert "://" not in (ROOT / "deploy" / name).read_text(), "an address of a package index"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", lock_files())
def test_a_lock_satisfies_what_the_projects_ask_for(name: str, python: str) -> None:
    installed = versions(name, python)
    for line in lock_files()[name]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(installed[canonicalize_name(wanted.name)]), f"{name}: run make lock: {line}"


def test_variants_share_their_versions() -> None:
    seen: dict[tuple[str, str], set[Version]] = defaultdict(set)
    for variant in VARIANTS:
        for python in PYTHONS:
            for package, version in versions(f"requirements-{variant}.lock", python).items():
                seen[package, python].add(version)
    assert not {package: found for package, found in seen.items() if len(found) > 1}


def test_the_locks_hold_for_the_pythons_that_the_projects_take() -> None:
    for path in ("pyproject.toml", "client/pyproject.toml"):
        assert project(path)["project"]["requires-python"] == f">={PYTHONS[0]}"


def test_tools_that_look_at_the_supply_have_exact_versions() -> None:
    lines = Path(ROOT / "deploy/requirements-supply.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in lines if not line.startswith("#"))


def test_lower_bounds_of_every_extra_are_tested_or_there_is_a_reason() -> None:
    extras = project("pyproject.toml")["project"]["optional-dependencies"]
    assert UNTESTED_EXTRAS.keys() <= extras.keys()
    tested = " ".join(lowest_versions())
    for extra in extras.keys() - UNTESTED_EXTRAS.keys():
        assert all(Requirement(line).name in tested for line in extras[extra]), extra
