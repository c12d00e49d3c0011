"""Callers of a service over HTTP: so many at once, each sends its next request when it has the answer to the last."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any, NamedTuple


class Load(NamedTuple):
    """What callers have seen: requests per second, and percentiles of the time of one, in seconds."""

    rate: float
    p50: float
    p99: float


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the service answered {head[:60]!r}: {body[:300]!r}")
    return body


def request_of(host: str, path: str, body: Any) -> bytes:
    """Return a request with a body of JSON."""
    text = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


async def load(port: int, requests: list[bytes], callers: int, seconds: float, warm_seconds: float) -> Load:
    """Send requests for so long, by so many callers at once; what comes in the first seconds is not counted."""
    times: list[float] = []
    begin = time.perf_counter() + warm_seconds
    end = begin + seconds

    async def caller(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        place = number
        while (sent := time.perf_counter()) < end:
            await _call(reader, writer, requests[place % len(requests)])
            place += callers
            if sent >= begin:
                times.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*map(caller, range(callers)))
    cuts = statistics.quantiles(times, n=100)
    return Load(len(times) / seconds, statistics.median(times), cuts[98])


async def answer(port: int, request: bytes) -> Any:
    """Return what one request is answered with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        return json.loads(await _call(reader, writer, request))
    finally:
        writer.close()
