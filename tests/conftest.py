"""Fixtures of all tests: sessions over each transport, a printed seed, and the rule that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import psutil
import pytest
from hypothesis.internal.conjecture import providers as hypothesis_providers

from .gpus import GPUS, NAMES
from .support.fixtures import node as node
from .support.fixtures import node_host as node_host

PATIENCE_SECONDS = 20.0
os.environ.setdefault("TELEGRAD_COMPILED_KERNELS", "wait")  # whichever kernel a test meets, it meets it in every run
os.environ.setdefault("TELEGRAD_NATIVE", "wait")  # as on machines where programs have run before


_SEED = "TEST_SEED"
"""The variable with the number that all seeds are made of. Whoever sets it gets the inputs of an earlier run again."""


def pytest_configure() -> None:
    """Draw the number that all seeds are made of, unless it is given, and heed interrupts.

    A shell has its background jobs ignore interrupts; tests interrupt themselves and what they start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("given", derandomize=True, database=None)
    if _SEED in os.environ:
        hypothesis.settings.load_profile("given")
    # What is drawn for a seed must not depend on which modules are loaded; and it takes seconds to read them all.
    hypothesis_providers._get_local_constants = lambda: hypothesis_providers._local_constants
    os.environ.setdefault(_SEED, str(random.SystemRandom().randrange(2**32)))


def pytest_report_header() -> str:
    """What to set for the same inputs."""
    return f"{_SEED}={os.environ[_SEED]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that hold addresses: processes that share the tests would not agree about them."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"names of tests hold addresses, give them ids: {', '.join(named)}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage in what the collection makes, and in PyTorch's database, neither now nor while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _seed_of(request: pytest.FixtureRequest) -> int:
    return zlib.crc32(f"{os.environ[_SEED]} {request.node.nodeid}".encode())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's own seed, printed where the test fails."""
    return _seed_of(request)


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    """Whatever draws from a library's own generator draws the same numbers again for the same seed."""
    value = _seed_of(request)
    print(f"seed = {value}, {_SEED}={os.environ[_SEED]}")
    random.seed(value)
    np.random.seed(value)
    if "torch" in sys.modules:
        _seed_torch(sys.modules["torch"], value)


def _seed_torch(torch: Any, seed: int) -> None:
    """Do what ``torch.manual_seed`` does, which writes down the whole stack for each kind of device not used yet."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A NumPy generator of that seed."""
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def loaded_loops() -> None:
    """Loops that come after a hundred small calls are there from the beginning: a library's differ by a rounding."""
    from server.engine import compiled
    from server.engine.array_library import host_fourier

    matrices = [
        f"factorizations.{name}" for name in ("sequences", "matrices", "interleaved", "spectra", "eigenvectors")
    ]
    for name in (*host_fourier.MODULES, "tensors.norms", *matrices):
        compiled.kernels(name)


@pytest.fixture(scope="session")
def host(loaded_loops: None) -> Any:
    """An engine in this process."""
    from server.worker.host import Host

    return Host(["cpu"])


@pytest.fixture(scope="session", params=GPUS)
def cuda_device(request: pytest.FixtureRequest) -> str:
    """The name of a GPU; a test that asks for it runs on the first two that there are."""
    return str(request.param)


@pytest.fixture(scope="session")
def cuda_host() -> Any:
    """An engine in this process that serves the first two GPUs, or the one that there is."""
    from server.worker.host import Host

    return Host(NAMES)


@pytest.fixture
def tg(host: Any) -> Iterator[Any]:
    """The client library on a session of its own, driven in this process."""
    yield from _connected(host)


@pytest.fixture
def cuda_tg(cuda_host: Any, cuda_device: str) -> Iterator[Any]:
    """The same on a GPU, which is the current one."""
    for telegrad in _connected(cuda_host):
        if cuda_device == NAMES[0]:
            yield telegrad
        else:
            with telegrad.cuda.device(cuda_device):
                yield telegrad


def _connected(host: Any) -> Iterator[Any]:
    import telegrad

    with telegrad.connect(in_process=host) as connection:
        yield telegrad
        number = next(n for n, s in host.sessions.items() if s is connection.session.transport._session)
    leftover = {str(d): b.allocator.allocated_bytes(number) for d, b in host.backends.items()}
    assert not any(leftover.values()), f"the session left {leftover} bytes behind"


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_sought_in_what_is_new() -> Iterator[None]:
    """Leave what a module has filled caches with out of the garbage collections of all modules that follow."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _tables_have_room() -> Iterator[None]:
    """Plans of all tests before would crowd those of a module out: what a process remembers is bounded."""
    remembered = sys.modules.get("server.engine.replay.remembered")
    if remembered is not None and remembered.total_weight() > remembered.MOST_WEIGHT // 2:
        for table in remembered.tables.all:
            remembered.forget_all(table)
    yield


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """No session, process or thread outlives the test that started it; bytes are counted where sessions are opened."""
    before = {what: found() for what, found in _LEAVINGS.items()}
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    for what, found in _LEAVINGS.items():
        while left := found() - before[what]:
            assert time.monotonic() < deadline, f"the test left {what} behind: {left}"
            time.sleep(0.01)


def _sessions() -> set[Any]:
    from telegrad._session.current import entered_sessions

    return set(entered_sessions())


def _processes() -> set[Any]:
    """Children of this process, of which Linux keeps lists; psutil takes a look at all processes, which takes long."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except ChildProcessError:
        return set()
    except OSError:  # a thread has ended meanwhile
        lists = []
    if not lists:
        return set(psutil.Process().children())
    found: set[Any] = set()
    for pid in " ".join(lists).split():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(int(pid)))
    return found


def _threads() -> set[Any]:
    """All threads but those that the CPU kernels of this process share, which stay."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("cpu kernels")}


_LEAVINGS: dict[str, Callable[[], set[Any]]] = {"sessions": _sessions, "processes": _processes, "threads": _threads}
