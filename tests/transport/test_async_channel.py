"""The gateway's end of a channel, on the event loop that serves."""

from __future__ import annotations

import asyncio

import numpy as np
import uvloop

from server.ipc import channel
from server.ipc.channel import AsyncChannel, Frame, FrameWriter


def test_the_end_is_told_of_where_the_other_process_has_left_bytes_unread(rng: np.random.Generator) -> None:
    """What it has written last comes before, however much that is."""
    body = rng.bytes(100_000)
    frames: list[Frame] = []

    async def talk() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        ours, theirs = channel.channel_pair()
        made = AsyncChannel(ours, loop, frames.append, ended.set)
        try:
            for _ in range(100):  # more than the socket takes, and nobody reads them
                made.send(channel.REQUEST, 1, [body])
            writer = FrameWriter(theirs)
            for number in range(10):
                writer.put(channel.ANSWER, number, [body])
            assert writer.flush()
            theirs.close()
            await asyncio.wait_for(ended.wait(), 30)
        finally:
            made.close()

    uvloop.run(talk())
    assert [frame.number for frame in frames] == [*range(10)]
    assert all(frame.body == body for frame in frames)
