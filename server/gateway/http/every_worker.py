"""Questions to all workers at once: about which devices, and what is said of workers that do not answer.

One that hangs or is being started keeps no other's answer back. Knows no question in particular.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from fastapi import Response

from server.gateway.dependencies import Gateway, SessionLike, WorkerLike, ask_worker
from telegrad_protocol.errors import CommunicationError, DeviceError, TelegradError, WorkerCrashedError

ANSWER_SECONDS: Final = 5.0
"""How long others' answers wait for a worker that does not answer."""
MISSING_HEADER: Final = "Telegrad-Missing-Workers"
"""In this header an answer that is incomplete says of which workers."""

_ABSENCE: Final = (WorkerCrashedError, CommunicationError)
"""Types of the errors that tell of a worker that does not run, or does not answer in time."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class NodeDevice:
    """A device of a worker, as the node and as sessions name it.

    Every worker has the node's ``cpu``: where several have, ``unique_name`` says of which worker, as `worker1/cpu`.
    """

    worker: WorkerLike
    name: str
    unique_name: str
    session_name: str

    @property
    def type(self) -> str:
        """The name without its index."""
        return self.name.partition(":")[0]


def all_devices(workers: Sequence[WorkerLike]) -> list[NodeDevice]:
    """Every device of every worker."""
    count = Counter(device for worker in workers for device in worker.group.devices)
    return [
        NodeDevice(worker, device, device if count[device] == 1 else f"worker{worker.number}/{device}", session_name)
        for worker in workers
        for device, session_name in zip(worker.group.devices, worker.group.session_devices, strict=True)
    ]


def chosen_devices(gateway: Gateway, device: str, session: SessionLike | None) -> list[NodeDevice]:
    """The devices that ``device`` names, all where it is empty; of the worker of ``session``, if one is given.

    A name without index stands for all devices of the type, `cpu` for that of every worker. Raises DeviceError if
    there is no such device.
    """
    devices = all_devices(gateway.registry.workers)
    if session is not None:
        devices = [one for one in devices if one.worker is gateway.registry.worker_of(session)]
    chosen = [one for one in devices if device in ("", one.name, one.unique_name, one.type)]
    if not chosen and (devices or device):
        there = ", ".join(one.unique_name for one in devices)
        raise DeviceError(f"device {device} is not available here; there are: {there}")
    return chosen


@dataclass
class Answers(Generic[Answer]):
    """What was answered about each device, and why some workers did not answer, by their numbers."""

    by_device: list[tuple[NodeDevice, Answer]]
    missing: dict[int, str]

    def note_missing(self, response: Response) -> None:
        """Say in the header of a response which workers it lacks."""
        if self.missing:
            response.headers[MISSING_HEADER] = ", ".join(map(str, self.missing))


async def ask_about(
    devices: Sequence[NodeDevice], request_of: Callable[[NodeDevice], msgspec.Struct], answer: Any,
    seconds: float | None = None,
) -> Answers[Any]:  # fmt: skip
    """Ask about each device. Without a time, one worker alone is waited for, and several for ``ANSWER_SECONDS``.

    Raises the first error that is not a worker's absence, or that one if nobody answers.
    """
    if seconds is None and any(device.worker is not devices[0].worker for device in devices):
        seconds = ANSWER_SECONDS
    asked = [_within(device.worker, request_of(device), answer, seconds) for device in devices]
    answered = await asyncio.gather(*asked)
    answers: Answers[Any] = Answers([], {})
    for device, value in zip(devices, answered, strict=True):
        if type(value) in _ABSENCE:
            answers.missing[device.worker.number] = value.message
        else:
            answers.by_device.append((device, _raised(value)))
    if answered and not answers.by_device:
        raise answered[0]
    return answers


def _raised(value: Any) -> Any:
    if isinstance(value, TelegradError):
        raise value
    return value


async def ask_each(workers: Sequence[WorkerLike], request: msgspec.Struct, answer: Any, seconds: float) -> list[Any]:
    """Ask every worker; its answer, or the error that stands for one, in the order of ``workers``."""
    return await asyncio.gather(*(_within(worker, request, answer, seconds) for worker in workers))


async def _within(worker: WorkerLike, request: msgspec.Struct, answer: Any, seconds: float | None) -> Any:
    """The answer of a worker, or the error that stands for it."""
    try:
        async with asyncio.timeout(seconds):
            return await ask_worker(worker, request, answer)
    except TimeoutError:
        return CommunicationError(f"worker {worker.number} ({worker.group}) has not answered for {seconds:g} s")
    except TelegradError as error:
        return error
