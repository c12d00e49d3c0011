"""The devices of all workers, for operators and for who chooses a server."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from fastapi import APIRouter

from server.gateway.dependencies import Gateway, GatewayHere, TenantHere
from server.gateway.http import models
from server.gateway.http.every_worker import NodeDevice, all_devices, ask_each
from server.gateway.problems import Problem
from server.gateway.tenancy.tenants import Tenant
from server.ipc import requests as verbs
from telegrad_protocol.errors import TelegradError

router = APIRouter(tags=["devices and memory"], responses={503: {"model": Problem}})

DEVICES_SECONDS: Final = 2.0
UNRESPONSIVE: Final = "unresponsive"


@router.get("/v1/devices", summary="List the devices", response_model=list[models.Device])
async def devices(gateway: GatewayHere, tenant: TenantHere) -> Any:
    """Every device of every worker, and what can be said of it now: memory is null where its worker does not answer.

    `memory_quota` is what the sessions of whoever asks may have in use on it together, and `host_quota` what they may
    take of its worker's host memory besides the elements of tensors.

    `tg.connect(gpus=2)` gets a session on a worker with two GPUs, to which they are `session_device`.
    """
    workers = gateway.registry.workers
    answered = await ask_each(workers, verbs.Devices(), list[verbs.DeviceInfo], DEVICES_SECONDS)
    states = {}
    for worker, infos in zip(workers, answered, strict=True):
        failed = isinstance(infos, TelegradError)
        states[worker.number] = UNRESPONSIVE if failed and worker.state == "serving" else worker.state
        if not failed:
            gateway.described[worker.group] = infos
    sessions = Counter(gateway.registry.worker_of(session).number for session in gateway.registry.sessions.values())
    told = {
        worker.number: gateway.described.get(worker.group, []) if isinstance(infos, TelegradError) else infos
        for worker, infos in zip(workers, answered, strict=True)
    }
    described = [
        _described(device, told[device.worker.number], states[device.worker.number], sessions[device.worker.number])
        for device in all_devices(workers)
    ]
    host_quota = int(tenant.host_memory or gateway.settings.host_quota)
    for device in described:
        device["memory_quota"] = _memory_quota(gateway, tenant, device.get("total_memory"))
        device["host_quota"] = host_quota
    return described


def _memory_quota(gateway: Gateway, tenant: Tenant, total: int | None) -> int | None:
    if tenant.memory is not None:
        return int(tenant.memory)
    return None if total is None else int(gateway.settings.memory_share * total)


def _described(device: NodeDevice, infos: list[verbs.DeviceInfo], state: str, sessions: int) -> dict[str, Any]:
    """The device as it was described last, under the node's name; what changes only if its worker answers."""
    info = next((info for info in infos if info.device == device.session_name), None)
    known = {} if info is None else msgspec.structs.asdict(info)
    if state != "serving":
        known.update(free_memory=None, allocated_memory=None, reserved_memory=None, pid=None)
    _, _, index = device.name.partition(":")
    return known | {
        "device": device.name, "type": device.type, "index": int(index) if index else None,
        "worker": device.worker.number, "session_device": device.session_name, "sessions": sessions, "state": state,
        "use": device.worker.use,
    }  # fmt: skip
