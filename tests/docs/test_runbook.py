"""The runbook and the page of error codes are complete, and what links to their sections leads there."""

from __future__ import annotations

import re
import runpy
from typing import get_args

import pytest
import yaml

from server.gateway.http.described_errors import statuses_of
from server.gateway.problems import STATUSES
from server.gateway.workers.supervisor import State
from telegrad_protocol.errors import BY_CODE

from .test_pages import PAGES, ROOT

LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
SECTIONS = {
    "worker-down", "worker-unresponsive", "restarts", "slow-round-trips", "out-of-memory", "quota-rejections",
    "authentication-failures", "gpu-errors", "kernel-cache-full", "certificate-expires", "drain-and-upgrade",
    "lost-tokens", "the-states-of-readyz",
}  # fmt: skip


def anchors(text: str) -> set[str]:
    """The names of a page's sections in links."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_sections_lead_to_sections(page) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if "://" not in target:
            other = page.parent / target if target else page
            assert anchor in anchors(other.read_text()), f"{target}#{anchor}"


def test_every_alert_has_a_section_that_the_runbook_or_its_page_tells_of() -> None:
    groups = yaml.safe_load((ROOT / "deploy/observability/alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors((ROOT / page).read_text()), rule["alert"]


def test_the_runbook_has_every_state_of_a_worker_and_every_symptom() -> None:
    assert anchors(RUNBOOK) >= SECTIONS
    states = RUNBOOK.partition("## The states of readyz")[2].partition("\n## ")[0]
    assert all(f"`{state}`" in states for state in get_args(State))
    health = (ROOT / "server/gateway/http/routes/health.py").read_text()
    refusals = [text.partition("{")[0].strip() for text in re.findall(r'unavailable\(f?"([^"]+)"', health)]
    assert len(refusals) == 3 and all(text in states for text in refusals)


def test_every_error_code_and_every_status_of_the_interface_is_explained() -> None:
    page = (ROOT / "docs/error-codes.md").read_text()
    assert runpy.run_path(str(ROOT / "docs/error_codes.py"))["WHAT_TO_DO"].keys() == BY_CODE.keys()
    assert all(f"| `{code}` | " in page for code in BY_CODE)
    usual = statuses_of("put", "/v1/sessions/{session_id}/tensors/{tensor_id}", {"parameters": [{}]})
    explained = {int(number) for number in re.findall(r"\b[45]\d\d\b", page)}
    assert usual | STATUSES | {405, 406} <= explained
