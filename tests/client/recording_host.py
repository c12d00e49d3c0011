"""An engine that computes nothing: it notes what calls send to it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from telegrad_protocol import messages, wire


def of_lines(sent: list[Any]) -> list[Any]:
    """Return instructions with the lines themselves: an instruction that Python specialises counts as another.

    Which ones it has specialised changes from run to run, and so where batches end, which free what has died before:
    calls that follow have that here.
    """
    lines = {one.number: one.line for one in sent if isinstance(one, messages.Site)}
    said: list[Any] = []
    died: list[int] = []
    for one in sent:
        if isinstance(one, messages.Free):
            died += one.ids
        elif isinstance(one, messages.Call):
            freed, died = [*died, *one.freed], []
            said.append(msgspec.structs.replace(one, site=lines.get(one.site, 0), freed=freed))
        elif not isinstance(one, messages.Site):
            said.append(msgspec.structs.replace(one, site=lines.get(one.site, 0)) if hasattr(one, "site") else one)
    return [*said, messages.Free(died)]


def _dropped(read: messages.Read) -> messages.Failure:
    """Return what a program gets for a number that it reads, such as that of a tensor in the place of a number."""
    return messages.Failure(
        messages.DROPPED, read.request, "NotComputedError", "nothing is computed", "read", "", "", ""
    )


class Recorder:
    """A session of an engine that computes nothing: it notes what it is sent, answers questions, and drops reads."""

    has_work = waits = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.sizes: list[int] = []
        self._answers: list[Any] = []

    def receive(self, kind: int, body: memoryview) -> None:
        batch = wire.decode_instructions(body) if kind == wire.BATCH else []
        self.sent += batch
        self.sizes.append(len(batch))
        self._answers += [messages.Answer(one.request, None) for one in batch if isinstance(one, messages.Query)]
        self._answers += [_dropped(one) for one in batch if isinstance(one, messages.Read)]

    def take_replies(self) -> list[tuple[int, list[Any]]]:
        answers, self._answers = self._answers, []
        return [(wire.BATCH, [wire.encode_batch(answers)])] if answers else []

    def frames_left(self) -> None:
        """Do nothing."""

    close = frames_left


class RecordingHost:
    """Stands for the host of an engine; ``session`` is the one that was opened."""

    def __init__(self, host: Any) -> None:
        self.hello, self.new_number = host.hello, host.new_number
        self.session = Recorder()

    def open(self, number: int, wishes: Any) -> Recorder:
        return self.session


@pytest.fixture
def recording(host: Any) -> Iterator[RecordingHost]:
    """An engine that computes nothing, while garbage is collected where a test asks for it."""
    gc.freeze()
    gc.disable()
    yield RecordingHost(host)
    gc.enable()
