"""The Kubernetes manifests and the compose file: what they promise each other, the image and the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.lock import ROOT
from deploy.replay import DOCKERFILE, parse
from server.gateway.app import create_app
from server.gateway.serving import SHUTDOWN_SECONDS
from server.gateway.sessions import CLOSE_SECONDS
from server.gateway.settings import PREFIX, Settings
from server.gateway.workers.process import STOP_SECONDS
from server.gateway.workers.supervisor import START_SECONDS

from ..gateway.conftest import Http
from ..gateway.registry import FakeRegistry

FOLDER = ROOT / "deploy/kubernetes"
IMAGE = {step.keyword: step.text for step in parse(DOCKERFILE.read_text())}
PORT = int(IMAGE["EXPOSE"])
NAME = {"app.kubernetes.io/name": "telegrad"}
MONITOR = "ServiceMonitor"
ENDS = SHUTDOWN_SECONDS + CLOSE_SECONDS + STOP_SECONDS + 1
"""Seconds that the server takes at most to end, once its sessions were given their time."""


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


BY_KIND: dict[str, list[dict[str, Any]]] = {}
for document in documents():
    BY_KIND.setdefault(document["kind"], []).append(document)
SERVER: dict[str, Any] = BY_KIND["StatefulSet"][0]["spec"]
POD: dict[str, Any] = SERVER["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/docker-compose.yml").read_text())
COMPOSED: dict[str, Any] = COMPOSE["services"]["telegrad"]


def variables() -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in CONTAINER["env"]}


def seconds(text: str) -> int:
    return int(re.fullmatch(r"(\d+)s", text)[1])  # type: ignore[index]


def test_everything_is_applied_and_every_manifest_has_the_kinds_that_a_deployment_takes() -> None:
    (kustomization,) = BY_KIND["Kustomization"]
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert {*kustomization["resources"]} == files - {"service-monitor.yaml"}
    assert "# - service-monitor.yaml" in (FOLDER / "kustomization.yaml").read_text()
    assert kustomization["images"][0]["name"] == CONTAINER["image"]
    wanted = {"StatefulSet", "Service", "Ingress", "NetworkPolicy", "PodDisruptionBudget", MONITOR}
    assert BY_KIND.keys() - {"Kustomization"} == wanted


def test_every_variable_is_one_that_the_server_reads_and_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    composed = {name: "a-long-secret" if "$" in value else value for name, value in COMPOSED["environment"].items()}
    for environment in (variables(), composed):
        assert environment.keys() <= known
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            assert Settings(host="0.0.0.0").port == PORT
    assert not [name for name in variables() if "TOKEN" in name], "a token in a variable is seen by who lists pods"


def test_a_service_s_own_variables_cannot_become_settings() -> None:
    services = {service["metadata"]["name"] for service in BY_KIND["Service"]}
    assert PREFIX.strip("_").lower() in services and POD["enableServiceLinks"] is False


def test_probes_ask_what_the_server_answers() -> None:
    probes = [CONTAINER[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    with Http(create_app(Settings(devices="cpu"), FakeRegistry())) as http:
        scraped = BY_KIND[MONITOR][0]["spec"]["endpoints"][0]["path"]
        for path in (scraped, *(probe["httpGet"]["path"] for probe in probes)):
            assert http.get(path).status_code == 200
    assert {probe["httpGet"]["port"] for probe in probes} == {"http"}
    assert [probe["httpGet"]["path"] for probe in probes] == ["/readyz", "/readyz", "/healthz"]
    startup = CONTAINER["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > START_SECONDS


def test_ports_and_labels_lead_from_the_ingress_to_the_server() -> None:
    assert [(port["name"], port["containerPort"]) for port in CONTAINER["ports"]] == [("http", PORT)]
    assert variables()["TELEGRAD_PORT"] == str(PORT)
    services = {service["metadata"]["name"]: service for service in BY_KIND["Service"]}
    for service in services.values():
        assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(PORT, "http")]
        assert NAME.items() <= service["spec"]["selector"].items()
    assert SERVER["template"]["metadata"]["labels"] == SERVER["selector"]["matchLabels"] == NAME
    assert services[SERVER["serviceName"]]["spec"]["clusterIP"] == "None"
    assert services["telegrad"]["spec"]["selector"]["apps.kubernetes.io/pod-index"] == "0", "sessions are not balanced"
    backend = BY_KIND["Ingress"][0]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "telegrad", "port": {"name": "http"}}
    monitor = BY_KIND[MONITOR][0]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= services[SERVER["serviceName"]]["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == "http" and monitor["endpoints"][0]["authorization"]["type"] == "Bearer"
    assert COMPOSED["ports"] == [f"{PORT}:{PORT}"]


def test_the_ingress_encrypts_and_leaves_streams_open() -> None:
    (ingress,) = BY_KIND["Ingress"]
    (tls,), (rule,) = ingress["spec"]["tls"], ingress["spec"]["rules"]
    assert tls["hosts"] == [rule["host"]] and tls["secretName"]
    limits = {key.partition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
    assert int(limits["proxy-read-timeout"]) >= 3600 and int(limits["proxy-send-timeout"]) >= 3600
    assert limits["proxy-body-size"] == "0" and limits["proxy-request-buffering"] == limits["proxy-buffering"] == "off"
    assert limits["force-ssl-redirect"] == "true" and limits["proxy-next-upstream"] == "off"
    assert variables()["TELEGRAD_MAX_CONNECTIONS_PER_ADDRESS"] == variables()["TELEGRAD_MAX_CONNECTIONS"]


def test_nobody_else_may_connect_and_the_server_connects_to_nobody() -> None:
    (policy,) = BY_KIND["NetworkPolicy"]
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"] == NAME and {*spec["policyTypes"]} == {"Ingress", "Egress"}
    assert spec["egress"] == []
    (rule,) = spec["ingress"]
    assert rule["from"] and all(peer and "ipBlock" not in peer for peer in rule["from"])
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]


def test_the_server_is_nobody_and_writes_where_it_must_alone() -> None:
    uid = int(IMAGE["USER"])
    pod, own = POD["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] == pod["runAsGroup"] == pod["fsGroup"] == uid
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"} and POD["automountServiceAccountToken"] is False
    assert own == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    cache = f"{IMAGE['WORKDIR']}/.cache"
    assert {name: mount["mountPath"] for name, mount in mounts.items() if not mount.get("readOnly")} == {
        "tmp": "/tmp", "cache": cache,
    }  # fmt: skip
    volumes = {volume["name"] for volume in POD["volumes"]}
    claims = {claim["metadata"]["name"]: claim["spec"] for claim in SERVER["volumeClaimTemplates"]}
    assert volumes | claims.keys() == mounts.keys() and claims["cache"]["accessModes"] == ["ReadWriteOnce"]
    assert variables()["TELEGRAD_TENANTS"].startswith(f"{mounts['tenants']['mountPath']}/")
    assert "subPath" not in mounts["tenants"], "a single file stays what it was when the Secret changes"
    assert COMPOSED["read_only"] is True and COMPOSED["cap_drop"] == ["ALL"]
    assert COMPOSED["security_opt"] == ["no-new-privileges:true"]
    assert COMPOSED["volumes"] == [f"cache:{cache}"] and "cache" in COMPOSE["volumes"]
    assert [mount.partition(":")[0] for mount in COMPOSED["tmpfs"]] == ["/tmp"]


def test_memory_processes_and_gpus_are_bounded() -> None:
    limits, requests = CONTAINER["resources"]["limits"], CONTAINER["resources"]["requests"]
    assert limits["memory"] and limits["nvidia.com/gpu"] and limits["ephemeral-storage"] and requests["memory"]
    assert POD["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert all("sizeLimit" in volume["emptyDir"] for volume in POD["volumes"] if "emptyDir" in volume)
    assert COMPOSED["pids_limit"] > 0 and COMPOSED["mem_limit"]
    (device,) = COMPOSED["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia" and device["capabilities"] == ["gpu"]


def test_the_server_is_given_the_time_that_it_takes_to_end() -> None:
    word, pause = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep"
    drain = float(variables()["TELEGRAD_DRAIN_SECONDS"])
    assert POD["terminationGracePeriodSeconds"] >= float(pause) + drain + ENDS
    composed = float(COMPOSED["environment"]["TELEGRAD_DRAIN_SECONDS"])
    assert seconds(COMPOSED["stop_grace_period"]) >= composed + ENDS


def test_an_eviction_waits_for_an_operator() -> None:
    (budget,) = BY_KIND["PodDisruptionBudget"]
    assert budget["spec"] == {"maxUnavailable": 0, "selector": {"matchLabels": NAME}}
