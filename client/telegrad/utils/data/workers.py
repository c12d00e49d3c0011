"""Workers of a ``DataLoader``: threads of this process by default, processes where the program asks for them.

Each worker is an executor with one thread or one process, whose state stands in ``_own``. Threads share the program's
session, so that data sets may compute with tensors, and each has a copy of the data set. A process has no session: its
data set works with NumPy and plain Python, and batches become tensors in the program's process.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from telegrad._functions.creation import set_default_device
from telegrad._session.current import current_session, share_with_this_thread
from telegrad._session.devices import default_device
from telegrad._session.session import ClientSession
from telegrad_protocol.meta import Device

from .own_copies import own_copy


@dataclass(frozen=True)
class WorkerInfo:
    """What ``get_worker_info`` tells a worker: its number, how many there are, its seed, and its data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


@dataclass
class _State:
    info: WorkerInfo
    fetch: Callable[[Any, Any], Any]
    is_stream: bool
    failure: BaseException | None = None
    stream: Iterator[Any] | None = None


class _Own(threading.local):
    state: _State | None = None


_own: Final = _Own()
END: Final = "the end of a worker's stream"
"""What a worker returns where its stream has ended; a string, since it may come from another process."""


def get_worker_info() -> WorkerInfo | None:
    """Return which worker of a ``DataLoader`` this is; None where it is none."""
    return None if _own.state is None else _own.state.info


@dataclass(frozen=True)
class WorkerPlan:
    """What a worker is told when it starts."""

    dataset: Any
    fetch: Callable[[Any, Any], Any]
    init: Callable[[int], Any] | None
    count: int
    base_seed: int
    context: Any = None
    is_stream: bool = False

    def start(self) -> list[Executor]:
        """Return one executor for each worker."""
        return [self._executor(number) for number in range(self.count)]

    def _executor(self, number: int) -> Executor:
        given = (self.dataset, self.fetch, self.init)
        dataset, fetch, init = given if self.context is not None else own_copy(*given)
        info = WorkerInfo(number, self.count, self.base_seed + number, dataset)
        if self.context is not None:
            return ProcessPoolExecutor(1, self.context, _enter_process, (info, fetch, init, self.is_stream))
        session = current_session()
        arguments = (info, fetch, init, self.is_stream, session, default_device(session))
        return ThreadPoolExecutor(1, f"DataLoader worker {number}", _enter_thread, arguments)


def _enter_thread(
    info: WorkerInfo, fetch: Any, init: Any, is_stream: bool, session: ClientSession, device: Device
) -> None:
    share_with_this_thread(session)
    set_default_device(device)
    _enter(info, fetch, init, is_stream)


def _enter_process(info: WorkerInfo, fetch: Any, init: Any, is_stream: bool) -> None:
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)
    _enter(info, fetch, init, is_stream)


def _enter(info: WorkerInfo, fetch: Any, init: Callable[[int], Any] | None, is_stream: bool) -> None:
    """Make the calling thread, or process, the worker of this number."""
    state = _own.state = _State(info, fetch, is_stream)
    try:
        if init is not None:
            init(info.id)
    except Exception as error:  # an executor would hide it
        state.failure = error


def begin() -> None:
    """Have this worker read its stream from the start, at the beginning of an epoch."""
    state = _own.state
    assert state is not None
    if state.failure is not None:
        raise state.failure
    if state.is_stream:
        state.stream = iter(state.info.dataset)


def work(indices: Any) -> Any:
    """Return the batch of these indices, or the next one of the worker's stream."""
    state = _own.state
    assert state is not None
    return state.fetch(state.info.dataset if state.stream is None else state.stream, indices)


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Return four numbers of 32 bits, which seed the generators of one worker."""
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(number) for number in np.random.SeedSequence(entropy).generate_state(4)]
