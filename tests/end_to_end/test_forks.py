"""Forked processes: a child has nothing of its parent's sessions, connects anew, and disturbs nobody."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ..transport.waiting import wait_until
from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]

UNDER_THREADS = """
import gc, os, sys, threading
import telegrad as tg

url, children = sys.argv[1], int(sys.argv[2])
connection = tg.connect(url)
small, large = tg.ones(3), tg.ones(300_000)
stop = threading.Event()

def read():
    while not stop.is_set():
        assert small.tolist() == [1.0] * 3 and large.numpy().sum() == 300_000

def compute():
    total = tg.zeros(1)
    while not stop.is_set():
        total += 1

def refused(action):
    try:
        action()
    except tg.errors.CommunicationError as error:
        return "belongs to the process that was forked" in str(error) and "connect()" in str(error)

def child():
    assert refused(small.tolist) and refused(lambda: small + 1) and refused(lambda: tg.zeros(2))
    assert refused(lambda: tg.tensor([1.0])) and refused(lambda: tg.from_numpy(large_data))
    assert refused(tg.cuda.synchronize) and refused(lambda: connection.session.flush())
    global large
    large = None
    gc.collect()
    connection.disconnect()
    with tg.connect(url):
        assert tg.arange(4).sum().item() == 6
        assert (tg.ones(300_000) * 2).numpy().sum() == 600_000
    return 0

import numpy
large_data = numpy.ones(100_000)
threads = [threading.Thread(target=work) for work in (read, read, compute)]
for thread in threads:
    thread.start()
statuses = []
for number in range(children):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = child()
        finally:
            if number % 2:
                os._exit(status)
            stop.set()
            sys.exit(status)  # runs what is registered for the interpreter's exit
    statuses.append(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join()
assert large.numpy().sum() == 300_000
print(statuses, tg.wire_stats() is not None, connection.session.transport.stats.reconnects)
"""


def test_children_made_while_threads_work_connect_anew(server: ServerProcess, start_program: Start) -> None:
    output, errors = start_program(UNDER_THREADS, server.url, "8").communicate()
    assert output.splitlines()[-1:] == [f"{[0] * 8} True 0"], errors


POOL = """
import multiprocessing, sys
import telegrad as tg

def task(number):
    with tg.connect(sys.argv[1]):
        return (tg.ones(4) * number).sum().item()

def misuse(_):
    return weight.sum().item()

weight = tg.connect(sys.argv[1]) and tg.ones(2)
weight.sum().item()
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(pool.map(task, range(6)))
    try:
        pool.map(misuse, [0])
    except tg.errors.CommunicationError as error:
        print("belongs to the process that was forked" in str(error))
print(weight.tolist())
"""


def test_pools_of_forked_processes_have_sessions_of_their_own(server: ServerProcess, start_program: Start) -> None:
    output, errors = start_program(POOL, server.url).communicate()
    assert output.splitlines() == ["[0.0, 4.0, 8.0, 12.0, 16.0, 20.0]", "True", "[1.0, 1.0]"], errors


SERVED = """
import multiprocessing, os, telegrad
import torch

def task(number):
    try:
        return weight.sum().item()
    except Exception as error:
        return (torch.ones(4) * number).sum().item(), "belongs to the process that was forked" in str(error)

def nested(number):
    pid = os.fork()
    if pid == 0:
        os._exit(int((torch.ones(2) * number).sum().item()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), torch.ones(1).item()

weight = torch.ones(2)
weight.sum().item()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(task, range(4)), pool.map(nested, [3]))
torch.multiprocessing.start_processes(task, nprocs=1, start_method="fork")
print(weight.tolist())
"""


def test_forked_processes_of_pytorchs_programs_open_sessions_by_themselves(
    server: ServerProcess, start_program: Start, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVED)
    for where in ([server.url], []):
        run = "import sys; from telegrad.__main__ import main; sys.exit(main(['run', *sys.argv[1:]]))"
        output, errors = start_program(run, *(["--url", *where] if where else []), str(program)).communicate()
        expected = str([(4.0 * number, True) for number in range(4)])
        assert output.splitlines() == [f"{expected} [(6, 1.0)]", "[1.0, 1.0]"], errors
    # Pools end their processes without a word, whose sessions the server keeps for those that come back.
    wait_until(lambda: server.sessions == 0, "sessions of processes that have ended are closed")


ENDING = """
import multiprocessing, sys
import telegrad as tg

def child():
    tg.connect(sys.argv[1])
    assert tg.ones(2).sum().item() == 2

tg.connect(sys.argv[1])
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(process.exitcode, flush=True)
sys.stdin.readline()
"""


def test_a_session_ends_with_the_process_that_multiprocessing_forked(
    server: ServerProcess, start_program: Start
) -> None:
    program = start_program(ENDING, server.url)
    assert program.stdout is not None
    assert program.stdout.readline() == "0\n"
    assert server.sessions == 1, "that of the parent"
    assert program.communicate("\n")[1] == ""


PRIVATE = """
import os, time
import telegrad as tg

connection = tg.connect(devices="cpu")
tg.ones(1).item()
if os.fork() == 0:
    print(connection._server._process.pid, os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_a_private_server_ends_with_its_owner_though_a_child_lives_on(start_program: Start) -> None:
    program = start_program(PRIVATE)
    assert program.stdout is not None
    server, child = map(int, program.stdout.readline().split())
    try:
        program.kill()
        program.wait()
        wait_until(lambda: not _is_alive(server), "the private server ended")
        assert _is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_an_engine_in_this_process_stays_with_it(tg: Any) -> None:
    """The session of this test runs over a socket; one in this process is refused in the same way."""
    from server.worker.host import Host

    with tg.connect(in_process=Host(["cpu"])):
        x = tg.ones(2)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                x.tolist()
            except tg.errors.CommunicationError as error:
                status = 0 if "belongs to the process that was forked" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert x.tolist() == [1.0, 1.0]
