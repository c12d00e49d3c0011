"""Which GPUs this machine has, and so which devices the workers get. No CUDA here: that belongs to the workers."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from telegrad_protocol.errors import ConfigurationError

from .device_groups import ALL, DeviceGroup, Groups

PROBE_SECONDS: Final = 60.0
"""A driver that has not answered for so long will not."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_PROBE: Final = Path(__file__).with_name("gpu_probe.py")

log = logging.getLogger(__name__)


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What ``CUDA_VISIBLE_DEVICES`` calls the GPUs that the driver shows us, in order; it heeds that variable itself.

    Of several MIG devices a process is shown the first alone, so each that the variable lists is asked for by itself.
    """
    listed = [entry.strip() for entry in environ.get(VISIBLE, "").split(",")]
    if not any(entry.startswith("MIG-") for entry in listed):
        return _probe(environ)
    gpus: list[str] = []
    for entry in listed:
        if not _probe({**environ, VISIBLE: entry}):
            break  # CUDA, too, ignores what comes after a device that is not there
        gpus.append(entry)
    return gpus


def _probe(environ: Mapping[str, str]) -> list[str]:
    try:
        output = subprocess.run(
            [sys.executable, "-I", "-S", str(_PROBE)], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            timeout=PROBE_SECONDS, check=True,
        ).stdout  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        log.warning("GPUs not counted", extra={"reason": str(error)})
        return []
    answer = json.loads(output)
    if answer["error"]:
        log.warning("GPUs not counted", extra={"reason": f"cuInit answered with error {answer['error']}"})
    gpus: list[str] = answer["gpus"]
    return gpus


def has_cupy() -> bool:
    """Whether CuPy is installed, without which a worker cannot use a GPU."""
    return importlib.util.find_spec("cupy") is not None


def device_groups(devices: Groups) -> list[DeviceGroup]:
    """The devices of each worker; ``ConfigurationError`` if one was asked for that is not there.

    Where no devices are named, there is a worker for every GPU, or one for the CPU.
    """
    if devices and devices != ((ALL,),):
        return _named_groups(devices)
    gpus = visible_gpus()
    if gpus and not has_cupy():
        log.warning("the GPUs are not used: CuPy is not installed", extra={"gpus": len(gpus)})
        gpus = []
    if devices and any(gpu.startswith("MIG-") for gpu in gpus):
        gpus = gpus[:1]  # a process cannot have more of them
    names = tuple(f"cuda:{index}" for index in range(len(gpus)))
    groups = ((names,) if devices else tuple((name,) for name in names)) if gpus else (("cpu",),)
    return [_group(group, gpus) for group in groups]


def _named_groups(devices: Groups) -> list[DeviceGroup]:
    asks_for_gpus = any(device != "cpu" for group in devices for device in group)
    gpus = visible_gpus() if asks_for_gpus else []
    present = [*(f"cuda:{index}" for index in range(len(gpus))), "cpu"]
    missing = next((device for group in devices for device in group if device not in present), None)
    if missing is not None:
        raise ConfigurationError(f"TELEGRAD_DEVICES: {missing} is not there, found {', '.join(present)}")
    if asks_for_gpus and not has_cupy():
        raise ConfigurationError("TELEGRAD_DEVICES: GPUs need CuPy, install telegrad-server[cuda]")
    return [_group(group, gpus) for group in devices]


def _group(names: tuple[str, ...], gpus: list[str]) -> DeviceGroup:
    visible = tuple(gpus[int(name.removeprefix("cuda:"))] for name in names if name != "cpu")
    if len(visible) > 1 and any(gpu.startswith("MIG-") for gpu in visible):
        raise ConfigurationError(
            f"TELEGRAD_DEVICES: {', '.join(names)} are MIG devices, of which a process can use one: "
            "separate them by ';', so that each gets a worker"
        )
    return DeviceGroup((*names, "cpu") if "cpu" not in names else names, visible)
