"""Which devices workers get: what ``TELEGRAD_DEVICES`` means, and which GPUs there are."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from server.gateway import gpu_probe, hardware
from server.gateway.device_groups import DeviceGroup
from server.gateway.hardware import device_groups, visible_gpus
from server.gateway.settings import Settings
from telegrad_protocol.errors import ConfigurationError

GROUPS = [
    ("", ()),
    ("cpu", (("cpu",),)),
    ("cpu;cpu", (("cpu",), ("cpu",))),
    ("cuda", (("cuda:0",),)),
    ("cuda:0,cuda:1;cuda:2", (("cuda:0", "cuda:1"), ("cuda:2",))),
    (" cuda:3 , cuda:1 ; cpu ;", (("cuda:3", "cuda:1"), ("cpu",))),
    ("cuda:1,cpu;cuda:0,cpu", (("cuda:1", "cpu"), ("cuda:0", "cpu"))),
    ("all", (("all",),)),
    (("cpu", "cuda:0,cuda:1"), (("cpu",), ("cuda:0", "cuda:1"))),
    ((("cuda:1", "cpu"),), (("cuda:1", "cpu"),)),
]


@pytest.mark.parametrize(("given", "groups"), GROUPS)
def test_semicolons_separate_workers_and_commas_their_devices(given: Any, groups: Any) -> None:
    assert Settings(devices=given).devices == groups


@pytest.fixture
def with_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the driver show these GPUs, and CuPy be installed or not."""

    def set_gpus(*gpus: str, has_cupy: bool = True) -> None:
        monkeypatch.setattr(hardware, "visible_gpus", lambda: list(gpus))
        monkeypatch.setattr(hardware, "has_cupy", lambda: has_cupy)

    return set_gpus


def groups_of(text: str) -> list[DeviceGroup]:
    return device_groups(Settings(devices=text).devices)


def test_by_default_each_gpu_has_a_worker_and_without_one_the_cpu(with_gpus: Callable[..., None]) -> None:
    with_gpus("GPU-a", "GPU-b")
    assert groups_of("") == [DeviceGroup(("cuda:0", "cpu"), ("GPU-a",)), DeviceGroup(("cuda:1", "cpu"), ("GPU-b",))]
    assert groups_of("all") == [DeviceGroup(("cuda:0", "cuda:1", "cpu"), ("GPU-a", "GPU-b"))]
    with_gpus()
    assert groups_of("") == groups_of("all") == groups_of("cpu") == [DeviceGroup(("cpu",))]
    with_gpus("GPU-a", has_cupy=False)
    assert groups_of("") == groups_of("all") == [DeviceGroup(("cpu",))]


def test_a_worker_is_shown_its_own_gpus_and_numbers_them_from_0(with_gpus: Callable[..., None]) -> None:
    with_gpus("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    pair, single, host = groups_of("cuda:3,cpu,cuda:1;cuda:2;cpu")
    assert pair.environment() == {"CUDA_VISIBLE_DEVICES": "GPU-d,GPU-b"}
    assert (pair.devices, pair.session_devices) == (("cuda:3", "cpu", "cuda:1"), ("cuda:0", "cpu", "cuda:1"))
    assert single.environment() == {"CUDA_VISIBLE_DEVICES": "GPU-c"}
    assert (single.devices, single.session_devices) == (("cuda:2", "cpu"), ("cuda:0", "cpu"))
    assert host.environment() == {"CUDA_VISIBLE_DEVICES": ""}
    assert [group.gpus for group in (pair, single, host)] == [2, 1, 0]


@pytest.mark.parametrize("text", ["cuda:2", "cuda:0;cuda:2", "cpu,cuda:2"])
def test_a_device_that_is_not_there_is_refused(with_gpus: Callable[..., None], text: str) -> None:
    with_gpus("GPU-a", "GPU-b")
    with pytest.raises(ConfigurationError, match="TELEGRAD_DEVICES: cuda:2 is not there, found cuda:0, cuda:1, cpu"):
        groups_of(text)


def test_a_gpu_that_is_asked_for_needs_cupy(with_gpus: Callable[..., None]) -> None:
    with_gpus("GPU-a", has_cupy=False)
    with pytest.raises(ConfigurationError, match=r"CuPy, install telegrad-server\[cuda\]"):
        groups_of("cuda:0")


def test_parts_of_gpus_have_a_worker_each(with_gpus: Callable[..., None]) -> None:
    with_gpus("MIG-a", "MIG-b")
    assert [group.visible for group in groups_of("cuda:1;cuda:0")] == [("MIG-b",), ("MIG-a",)]
    assert [group.visible for group in groups_of("all")] == [("MIG-a",)]
    with pytest.raises(ConfigurationError, match=r"cuda:0, cuda:1 are MIG devices.*separate them by ';'"):
        groups_of("cuda:0,cuda:1")


class Driver:
    """Answers as the CUDA driver does: UUIDs by ordinal, those of GPUs and those of what is shown of them."""

    def __init__(self, wholes: list[int], own: list[int]) -> None:
        self.wholes, self.own = wholes, own

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.wholes)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0

    def cuDeviceGetUuid(self, uuid: Any, device: Any) -> int:
        ctypes.memmove(uuid, bytes([self.wholes[device.value]] * 16), 16)
        return 0

    def cuDeviceGetUuid_v2(self, uuid: Any, device: Any) -> int:
        ctypes.memmove(uuid, bytes([self.own[device.value]] * 16), 16)
        return 0


def test_gpus_are_named_so_that_every_process_understands() -> None:
    gpu, other = "GPU-01010101-0101-0101-0101-010101010101", "MIG-03030303-0303-0303-0303-030303030303"
    assert gpu_probe.names_of_gpus(Driver([1, 2], [1, 3])) == [gpu, other]
    assert gpu_probe.names_of_gpus(Driver([], [])) == []


class OldDriver(Driver):
    """A driver that tells no UUIDs."""

    cuDeviceGetUuid_v2 = property()  # type: ignore[assignment]  # reading it is an AttributeError


def test_gpus_of_a_driver_that_tells_no_uuid_are_named_by_ordinal() -> None:
    assert gpu_probe.names_of_gpus(OldDriver([1, 2], [1, 2])) == ["0", "1"]


def test_the_driver_is_asked_in_a_process_of_its_own() -> None:
    script = "import sys; from server.gateway.hardware import visible_gpus; print(visible_gpus());" + (
        "print([line for line in open('/proc/self/maps') if 'libcuda' in line], 'cupy' in sys.modules)"
    )
    gpus, loaded = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert gpus == str(visible_gpus())
    assert loaded == "[] False"


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles"])
def test_gpus_that_are_hidden_are_not_counted(hidden: str) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": hidden}) == []


def test_each_part_of_a_gpu_is_asked_for_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"MIG-a", "MIG-b", "GPU-c"}
    asked: list[str] = []

    def run(command: Any, env: dict[str, str], **_: Any) -> Any:
        asked.append(env["CUDA_VISIBLE_DEVICES"])
        gpus = ["shown as it likes"] if asked[-1] in there else []
        return subprocess.CompletedProcess(command, 0, json.dumps({"gpus": gpus, "error": 0}))

    monkeypatch.setattr(subprocess, "run", run)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-a, MIG-b,GPU-c,MIG-x,MIG-a"}) == ["MIG-a", "MIG-b", "GPU-c"]
    assert asked == ["MIG-a", "MIG-b", "GPU-c", "MIG-x"]


@pytest.mark.gpu
def test_the_names_of_gpus_show_them_in_order_to_another_process() -> None:
    gpus = visible_gpus()
    assert gpus
    for gpu in reversed(gpus):
        assert visible_gpus({"CUDA_VISIBLE_DEVICES": gpu}) == [gpu]
