"""A TCP proxy that delays what passes and cuts connections in the middle of frames, losing what is in flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from typing import Self

_READ_BYTES = 1 << 16
_QUEUED_CHUNKS = 2048
"""So much is on its way at most: more than a program sends in a round trip of 150 ms."""


class FaultProxy:
    """Listens on ``port`` and forwards to ``target_port`` of this machine, both ways, each byte ``delay`` seconds late.

    After ``cut_after([n1, n2, ...])`` the connection over which the n1-th byte from now passes (either direction) is
    reset there, the n2-th byte after that cuts again, and so on. A context manager.
    """

    def __init__(self, target_port: int, delay: float = 0.0) -> None:
        self.port = 0
        self.cuts = 0
        self.connections = 0
        self.delay = delay
        self._target_port = target_port
        self._distances: Iterator[int] = iter(())
        self._left: int | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._silent: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut_after(self, distances: Iterable[int]) -> None:
        """Cut at these distances in bytes, one after the other."""
        self._loop.call_soon_threadsafe(self._plan, iter(distances))

    def cut_now(self) -> None:
        """Cut every connection that is open."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result()

    def silence_now(self) -> None:
        """Let nothing more pass over the connections that are open, and close none: both ends believe they are."""
        asyncio.run_coroutine_threadsafe(self._silence_all(), self._loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _plan(self, distances: Iterator[int]) -> None:
        self._distances = distances
        self._left = next(distances, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        writers = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(back)
            async with asyncio.TaskGroup() as pumps:
                for source, sink in ((reader, back), (there, writer)):
                    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS)
                    pumps.create_task(self._take(source, queue))
                    pumps.create_task(self._forward(queue, sink, task))
        except* (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            for each in writers:
                each.transport.abort()
            self._open.discard(task)
            self._silent.discard(task)

    async def _take(self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        while data := await reader.read(_READ_BYTES):
            await queue.put((self._loop.time() + self.delay, data))
        await queue.put((self._loop.time() + self.delay, b""))

    async def _forward(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        while True:
            when, data = await queue.get()
            if task in self._silent:
                continue
            if when > self._loop.time():
                await asyncio.sleep(when - self._loop.time())
            if not data:
                raise EOFError
            allowed = self._allowance(len(data))
            writer.write(data[:allowed])
            if allowed < len(data):
                self.cuts += 1
                raise ConnectionAbortedError
            await writer.drain()

    def _allowance(self, count: int) -> int:
        if self._left is None:
            return count
        if self._left >= count:
            self._left -= count
            return count
        allowed, self._left = self._left, next(self._distances, None)
        return allowed

    async def _silence_all(self) -> None:
        self._silent.update(self._open)

    async def _cut_all(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            self.cuts += 1
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        self._server.close()
        await self._cut_all()
        await asyncio.sleep(0)
