"""Instructions that are queued again without the calls that made them: as a run of a program, or within a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from telegrad._session.sending.send_queue import BATCH_OPERATIONS, LONG_BATCH
from telegrad._session.sending.upload_queue import UploadQueue
from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol.messages import Call, Site

from .mark import Part, stood_for
from .table import Program
from .template_runs import TemplateRun, TemplateTexts, expanded


class Stretch(NamedTuple):
    """What a call has queued: its entries, the tensors that died before and those that are not freed yet.

    ``first`` is the number before those that were given out.
    """

    entries: list[Any]
    first: int
    freed: list[int]
    unfreed: list[int]


class RepeatingQueue(UploadQueue):
    """A queue that takes instructions whose calls are left out."""

    _gathered = -1
    """How many instructions had been sent when runs of programs began to wait for others."""

    @staticmethod
    def take_numbers(numbers: Any, count: int) -> int:
        """Take so many from an iterator, with nothing in between; return the first. C does so where it can (0087)."""
        first: int
        first, *_ = islice(numbers, count)
        return first

    def run_again(
        self, program: Program, inputs: list[int], constants: list[Any], encoded: bytes, count: int, modes: Modes,
        done: Callable[[int], None] | None = None,
    ) -> int:  # fmt: skip
        """Queue a run of a program that makes tensors of the next ``count`` numbers, and return the one before these.

        ``encoded`` are its constants in bytes; its first instruction runs under ``modes``. ``done`` is told the number
        that is returned as soon as the run is queued, before sending can raise an earlier failure.
        """
        dead = self.take_dead() if self._dead else ()
        first = self._give_out(count + 1)
        part = Part(first)
        part.stands_for = count
        with self._sending:
            try:
                part.replaced = 0, self.programs.run_again(program, inputs, constants, encoded, first, modes, dead)
                self._has_parts = True
                try:
                    self._pending.append(part)
                finally:  # an interrupt may come behind it
                    if done is not None:
                        done(first)
            except BaseException:
                self.programs.forget()
                if part not in self._pending:
                    self._dead.extend(dead)
                raise
        self.operations += count
        self.release(sends=True)
        return first

    def _waits_for_more(self) -> bool:
        """Return whether runs of programs wait for those that follow, to be sent with them; or else as ever."""
        if not (self._has_parts and self._gathers()):
            return super()._waits_for_more()
        self._full_at = self.operations + BATCH_OPERATIONS
        self._gathered = self.ahead.pace.submitted
        self._send_soon()
        return True

    def send_gathered(self) -> None:
        """Send what waits for more, since what comes next may take the program long."""
        if self._gathered == self.ahead.pace.submitted:
            with self._sending:
                self._send_pending()

    def _gathers(self) -> bool:
        queued = list(self._pending)
        count = len(queued) + stood_for(queued)
        return len(queued) < LONG_BATCH and self.ahead.gathers(count, self.operations - self._waited)

    def _give_out(self, count: int) -> int:
        """Give out so many numbers, at once since other threads take numbers, too; returns the first of them."""
        return self.take_numbers(self.new_id.__self__, count)  # type: ignore[attr-defined]

    def stretch_of(self, make: Callable[[int], Any]) -> tuple[Any, Stretch | None]:
        """Return what ``make`` returns, and what it has queued; None where that was sent, or nothing was before it.

        ``make`` is given the number before those that are given out.
        """
        before, first = list(self._dead), _next(self.new_id.__self__) - 1  # type: ignore[attr-defined]
        last = self._pending[-1] if self._pending else None
        result = make(first)
        queued = list(self._pending)
        place = len(queued) - 1
        while place >= 0 and queued[place] is not last:
            place -= 1
        if last is None or place < 0:
            return result, None
        entries = [entry for entry in expanded(queued[place + 1 :]) if entry.__class__ is not Site]
        return result, Stretch(entries, first, before, list(self._dead))

    def queue_again(
        self, texts: TemplateTexts, inputs: list[int], count: int, unfreed: Sequence[int], modes: Modes
    ) -> int:  # fmt: skip
        """Queue a run of a template in a part, and return the number before those of the next ``count`` tensors.

        Tensors that have died are freed by the first one. ``unfreed`` are distances of those that the next call frees.
        """
        first = self._give_out(count) - 1
        ids = texts.template.ids(first, inputs)
        one = texts.template.instruction(ids, 0)
        if self._dead:
            one = Call(one.op, one.site, one.outs, one.args, [*self.take_dead(), *one.freed])
        run = TemplateRun(texts, first, inputs, ids)
        self._pending.extend((one, run) if modes is DEFAULT else ((modes, one), (modes, run)))
        self._dead.extend([first + distance for distance in unfreed])
        self.operations += 1 + len(run)
        if self.operations >= self._full_at:
            self._send_full()
        return first


def _next(numbers: Any) -> int:
    """Return the number that ``itertools.count`` gives out next, which only its text tells without taking it."""
    return int(repr(numbers)[len("count(") : -1])
