"""The alerts, the dashboard and the configuration of ``deploy/observability`` fit what a real server shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.gateway.observability.metrics import Described, Metrics

from .conftest import Observed
from .queries import labels_in, labels_of_result, parsed, uses_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/observability"
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana/dashboards/telegrad.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] not in ("row", "text")]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
SCRAPED = {"instance", "job"}
"""The labels that Prometheus adds."""
ITS_OWN = {"up": SCRAPED, "ALERTS": {"alertname", "alertstate", *SCRAPED}}
"""Series of Prometheus itself."""
UNITS = {"percentunit", "short", "s", "bytes", "ops", "Bps", "celsius", "watt", "hertz"}


def known_labels(observed: Observed) -> dict[str, set[str]]:
    """Of each series that the server shows the labels; of one without a value yet, those that it is described with."""
    known: dict[str, set[str]] = {name: set(labels) for name, labels in ITS_OWN.items()}
    for name, labels, _ in observed.scraped.samples:
        known.setdefault(name, set(SCRAPED)).update(labels)
    for metric in Metrics().described:
        if metric.name.removesuffix("_total") in observed.scraped.kinds:
            known.setdefault(metric.name, {*SCRAPED, *metric.labels})
    return known


def test_what_a_server_shows_is_described(observed: Observed) -> None:
    described = {metric.name.removesuffix("_total"): metric for metric in Metrics().described}
    shown = {name: kind for name, kind in observed.scraped.kinds.items() if not name.endswith("_created")}
    assert {name for name in shown if name.startswith("telegrad_")} == described.keys()
    assert {name: shown[name] for name in described} == {name: metric.kind for name, metric in described.items()}
    for name, labels, _ in observed.scraped.samples:
        base = re.sub(r"_(total|bucket|count|sum|created)$", "", name)
        if base in described:
            assert set(described[base].labels) == labels.keys() - {"le"}, name


def test_kinds_and_units_of_metrics_are_in_their_names() -> None:
    def is_named_well(metric: Described) -> bool:
        return (metric.kind == "counter") == metric.name.endswith("_total") and (
            metric.kind != "histogram" or metric.name.endswith(("_seconds", "_requests"))
        )

    assert [metric.name for metric in Metrics().described if not is_named_well(metric)] == []
    assert [metric.name for metric in Metrics().described if not metric.help.endswith(".")] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_uses_what_there_is_and_says_what_to_do(rule: dict[str, Any], observed: Observed) -> None:
    known = known_labels(observed)
    uses = uses_of(rule["expr"])
    assert (
        uses
        and [(name, lacking) for name, labels in uses.items() if (lacking := labels - known.get(name, set()))] == []
    )
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    summary, runbook = rule["annotations"]["summary"], rule["annotations"]["runbook"]
    assert labels_in(summary) - {"value"} <= labels_of_result(rule["expr"], known)
    page, _, section = runbook.partition("#")
    assert section == rule["alert"].lower()
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert rule["alert"] in headings


def test_alerts_have_names_of_their_own_and_every_runbook_an_alert() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    headings = re.findall(r"^### (Telegrad\w+)$", (ROOT / "docs/observability.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(names)


def test_panels_use_what_there_is(observed: Observed) -> None:
    known = known_labels(observed)
    for title, target in TARGETS:
        for name, labels in uses_of(target["expr"]).items():
            assert labels <= known.get(name, set()), f"{title}: {name} has no {labels - known.get(name, set())}"
        shown = labels_in(target["legendFormat"])
        assert shown <= labels_of_result(target["expr"], known), f"{title}: {target['legendFormat']}"
    for annotation in DASHBOARD["annotations"]["list"]:
        assert uses_of(annotation["expr"]).keys() == {"ALERTS"}


def test_every_metric_is_in_a_panel_or_an_alert() -> None:
    expressions = [*(target["expr"] for _, target in TARGETS), *(rule["expr"] for rule in RULES)]
    used = {name for expression in expressions for name in uses_of(expression)}
    unused = {m.name for m in Metrics().described if not used & {m.name, f"{m.name}_bucket", f"{m.name}_count"}}
    assert unused == {
        "telegrad_build_info", "telegrad_sessions_opened_total", "telegrad_frames_total", "telegrad_connections",
        "telegrad_http_tensor_bytes_total", "telegrad_worker_sessions", "telegrad_queued_bytes",
        "telegrad_unsent_bytes",
    }  # fmt: skip


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    ids = Counter(panel["id"] for panel in DASHBOARD["panels"])
    assert [id for id, count in ids.items() if count > 1] == []
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    for variable in (variables["instance"], variables["tenant"]):
        assert re.fullmatch(r"label_values\(telegrad_\w+, \w+\)", variable["query"]["query"])
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert panel["datasource"] == source and panel["description"], panel["title"]
        assert all(target["datasource"] == source for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    taken = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(taken.values()) == 1 and max(x for x, _ in taken) < 24
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Is it healthy?", "Who uses it?", "What is slow?", "What failed?", "Devices", "Exported programs"]


def test_prometheus_and_grafana_are_given_these_files() -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = configuration["scrape_configs"]
    assert configuration["rule_files"] == ["alerts.yml"] and job["job_name"] == "telegrad"
    compose = yaml.safe_load((ROOT / "deploy/docker-compose.observability.yml").read_text())
    base = yaml.safe_load((ROOT / "deploy/docker-compose.yml").read_text())
    services = compose["services"]
    (target,) = job["static_configs"][0]["targets"]
    service, _, port = target.partition(":")
    assert service in base["services"] and f"{port}:{port}" in base["services"][service]["ports"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    for name in ("prometheus", "grafana"):
        mounts = [mount.split(":") for mount in services[name]["volumes"]]
        sources = [ROOT / "deploy" / source for source, *_ in mounts if source.startswith(".")]
        assert sources and all(source.exists() for source in sources)
    (source,) = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["uid"] == "prometheus"
    (provider,) = yaml.safe_load((FOLDER / "grafana/provisioning/dashboards/telegrad.yml").read_text())["providers"]
    assert any(mount.split(":")[1] == provider["options"]["path"] for mount in services["grafana"]["volumes"])


@pytest.mark.parametrize("expression", ["sum by (x (a)", "rate(a)", "a{b=~}", "$unknown"])
def test_a_wrong_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):
        parsed(expression)
