"""Mutated frames against sessions in this process, beside a victim's session of the same host.

A *portion* is one attacker's session: the frames of recorded programs, most of them mutated. All of it is drawn from
the seed and the portion's number, so that a portion can be repeated alone.
"""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from server.engine.autograd import graph_task
from server.engine.device import cancellation, work
from server.session import failures
from server.worker.host import Host
from telegrad_protocol import wire
from telegrad_protocol.errors import BY_CODE, InternalError, TelegradError
from telegrad_protocol.messages import Failure, Resume
from tests.session.driver import Talk, call

from .corpus import Program, first_frames, recorded_programs
from .frames import random_frame
from .mutation import Frame

FRAMES_PER_PORTION = 2000
QUOTA_BYTES = 1 << 20
OPERATION_WORK = 1e6
"""Multiply-adds: what is legal and takes long shows nothing."""
GRAPH_NODES = 5000
SLOW_SECONDS = 10
"""A frame that takes so long of the processor is reported; what waits for good is found from outside."""
FRAMES_PER_LOOK = 100
"""How often the victim is looked at."""
MUTATED = 0.8


class Slow(BaseException):
    """A frame took too long."""


class SessionFuzz:
    """Attackers' sessions one after the other, and the victim, on one host."""

    def __init__(self, seed: int) -> None:
        self.host = Host(["cpu"])
        self.programs = recorded_programs(self.host)
        self.seed = seed
        work.limit, graph_task.most_nodes = OPERATION_WORK, GRAPH_NODES
        self._all = [frame for program in self.programs for frame in program]
        self._victim = Talk(self.host)
        self._held = np.arange(12, dtype=np.float32).reshape(3, 4)
        self._victim.upload(1, self._held)
        signal.signal(signal.SIGPROF, self._took_long)
        self._ticks = 0
        failures.traceback_for = _traceback_of_defects

    def run(self, portion: int) -> tuple[int, list[str]]:
        """Send a portion's frames; return how many were mutated, and what was wrong, in words."""
        rng = random.Random(f"{self.seed}:{portion}")
        talk = Talk(self.host, quota_bytes=QUOTA_BYTES)
        wrong: list[str] = []
        mutated = 0
        try:
            for number, (is_mutated, frame) in enumerate(self._frames(rng)):
                mutated += is_mutated
                wrong += [f"portion {portion}, frame {number}: {text}" for text in self._send(talk, frame)]
                if number % FRAMES_PER_LOOK == 0:
                    wrong += [f"portion {portion}, frame {number}: {text}" for text in self._look_at_victim(rng)]
        finally:
            talk.session.close()
        self.host._collect_closed()
        if talk.held():
            wrong.append(f"portion {portion}: {talk.held()} bytes are held after the session's end")
        return mutated, wrong

    def close(self) -> None:
        """End the victim."""
        self._victim.session.close()

    def _frames(self, rng: random.Random) -> Iterator[tuple[bool, Frame]]:
        """The frames of a portion, and whether each was mutated."""
        yield from ((False, frame) for frame in first_frames())
        count = 0
        while count < FRAMES_PER_PORTION:
            program: Program = rng.choice(self.programs)
            for frame in program:
                is_mutated = rng.random() < MUTATED
                count += is_mutated
                yield is_mutated, random_frame(rng, frame, rng.choice(self._all)) if is_mutated else frame
            yield from ((False, frame) for frame in first_frames())

    def _send(self, talk: Talk, frame: Frame) -> list[str]:
        """Have a session execute a frame, and go on after a failure; what is wrong with what it did."""
        kind, body = frame
        self._ticks = 0
        signal.setitimer(signal.ITIMER_PROF, SLOW_SECONDS, SLOW_SECONDS)
        try:
            talk.put(kind, body)
            wrong = _judge(talk)
            for _ in range(4):  # other threads of the client may have failed, too
                if not talk.session.state.is_stopped:
                    break
                talk.session.state.interrupt = 0
                talk.put(wire.BATCH, wire.encode_batch([Resume(talk.session.state.failure)]))
                talk.session.state.update_stop()
                wrong += _judge(talk)
            return wrong
        except Slow:
            return [f"took more than {SLOW_SECONDS} s of the processor: {kind} {body.hex()}"]
        except Exception:
            return [f"{traceback.format_exc()}\n{kind} {body.hex()}"]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _took_long(self, *_: object) -> None:
        self._ticks += 1
        cancellation.request(_stop)
        if self._ticks > 1:  # it looks at no flag
            raise Slow

    def _look_at_victim(self, rng: random.Random) -> list[str]:
        """Have the victim compute something; what is wrong with it."""
        factor = float(rng.randrange(1, 9))
        replies = self._victim.send(call("mul", 2, 1, [factor]))
        if replies or not np.array_equal(self._victim.read(2), self._held * factor):
            return [f"the victim got {replies}, {self._victim.read(2)}"]
        return [] if np.array_equal(self._victim.read(1), self._held) else ["the victim's tensor has changed"]


def _stop() -> None:
    raise Slow


def _traceback_of_defects(error: BaseException) -> str:
    """The traceback where it is read."""
    is_known = isinstance(error, TelegradError) and not isinstance(error, InternalError)
    return "" if is_known else "".join(traceback.format_exception(error))


def _judge(talk: Talk) -> list[str]:
    """What is wrong with a session's replies."""
    wrong = []
    for kind, body in talk.frames():
        for reply in wire.decode_replies(body) if kind == wire.BATCH else ():
            if isinstance(reply, Failure) and (reply.code not in BY_CODE or reply.code == "InternalError"):
                wrong.append(_text(reply))
    return wrong


def _text(failure: Failure) -> Any:
    return f"{failure.code}: {failure.message} [{failure.operands}]\n{failure.traceback}"
