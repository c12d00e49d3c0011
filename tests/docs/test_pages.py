"""What the pages promise: links that lead somewhere, decisions that are indexed, make targets that exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("client/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path):
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs/decisions/README.md").read_text()
    pages = {page.name for page in (ROOT / "docs/decisions").glob("[0-9]*.md")}
    assert pages == {link for link in LINK.findall(index) if link[0].isdigit()}


def test_decision_numbers_are_unique():
    numbers = [page.name[:4] for page in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_every_make_command_in_the_pages_is_a_target():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    listing = subprocess.check_output(["make", "-s", "-C", str(ROOT), "help"], text=True, env=clean)
    targets = {line.split()[0] for line in listing.splitlines()}
    named = {
        name for page in PAGES for name in re.findall(r"(?:`|^ {4})make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named - targets == set()


def test_the_variables_of_the_docs_exist():
    from server.gateway.settings import CLIENT_VARIABLES, PREFIX, Settings

    known = {PREFIX + name.upper() for name in Settings.model_fields} | CLIENT_VARIABLES.keys()
    pages = [*PAGES, *(ROOT / "deploy").iterdir()]
    named = {name for page in pages if page.is_file() for name in re.findall(r"\bTELEGRAD_[A-Z_]+\b", page.read_text())}
    assert named - known - {"TELEGRAD_"} == set()
