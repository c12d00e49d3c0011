"""Starting several processes that run one function: ``torch.multiprocessing.spawn``."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any


class ProcessException(Exception):
    """A process has failed; ``error_index`` is its number, ``pid`` that of the system."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """The function has raised an exception in a process."""


class ProcessExitedException(ProcessException):
    """A process was ended by a signal, or has exited with a status that is not 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable[..., Any], index: int, args: Sequence[Any], errors: Connection) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that were started."""

    def __init__(self, processes: Sequence[Any], errors: Sequence[Connection]) -> None:
        self.processes = list(processes)
        self._errors = errors
        self._running = dict(enumerate(processes))

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one has ended; return whether all have. The first failure ends the others and is raised."""
        if not self._running:
            return True
        wait([process.sentinel for process in self._running.values()], timeout)
        for index, process in list(self._running.items()):
            if process.exitcode is not None:
                del self._running[index]
                if process.exitcode:
                    self._end_others(grace_period)
                    self._raise(index, process)
        return not self._running

    def _end_others(self, grace_period: float | None) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.join(30 if grace_period is None else grace_period)
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, index: int, process: Any) -> None:
        errors = self._errors[index]
        if errors.poll():
            text = f"\n\n-- Process {index} terminated with the following error:\n{errors.recv()}"
            raise ProcessRaisedException(text, index, process.pid)
        status = process.exitcode
        how = f"was terminated by signal {-status}" if status < 0 else f"exited with status {status}"
        raise ProcessExitedException(f"process {index} {how}", index, process.pid, status)


def start_processes(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run ``fn(index, *args)`` in ``nprocs`` processes; wait for them, or return them where ``join`` is False.

    Raises ProcessRaisedException or ProcessExitedException where one fails; the others are ended then.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for index in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, args, sender), daemon=daemon)
        process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """``start_processes``, each in a fresh interpreter."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
