"""A call of a compiled function that is written down as graphs, which a backend of the program's own is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from telegrad._ops.operand_classes import overrides
from telegrad._session.parts.template_runs import expanded
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, thread
from telegrad._tensor.tensor import Tensor
from telegrad.compiler import regions
from telegrad.compiler.breaks import reason_of
from telegrad.compiler.counters import counters
from telegrad.compiler.guarded.situation import Situation
from telegrad.compiler.regions import Region, active
from telegrad.overrides import TorchFunctionMode
from telegrad.utils._pytree import tree_leaves
from telegrad_protocol import messages

from .graphs import Graphs
from .results import become, results_of
from .writing import GraphWriter, UnwritableError

_ENDING: Final = frozenset(
    ("backward", "register_hook", "retain_grad", "requires_grad_", "detach_", "set_", "__set__", "__delete__", "grad")
)
"""Functions that change what is known of a tensor here: they are called between two graphs."""
_REMOVABLE: Final = frozenset((messages.Call, messages.Free, messages.Upload, messages.Mode, messages.Site))


class _WaitsError(BaseException):
    """A function that is written down waits for the server; it is called again, after the graph."""


class _Writing(TorchFunctionMode):
    """Tells a region of the functions that are called in it."""

    def __init__(self, region: WrittenRegion) -> None:
        self._region = region

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if active.region is not self._region:
            return func(*args, **(kwargs or {}))
        return self._region.called(func, args, kwargs or {})


class WrittenRegion(Region):
    """A call that is written as graphs, each up to the next graph break."""

    waits_for_errors = False

    def __init__(
        self, session: ClientSession, function: Any, options: regions.Options, graphs: Graphs, names: Any
    ) -> None:
        super().__init__(session, function, options)
        self._graphs, self._names = graphs, names
        self._mode = _Writing(self)
        self._writer: GraphWriter | None = None
        """None where what is queued stays as it is."""
        self._situation = Situation.of(session)
        self._is_within = self._is_stopped = False
        """Whether a function is called that is written down, and whether it waits, so that it is called again."""

    def __enter__(self) -> Region:
        super().__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is not None:
            self._writer = None
        try:
            if self._session.holder is self:
                self._end_part()
        finally:
            self._mode.__exit__(kind, error, traceback)
            super().__exit__(kind, error, traceback)

    def holds(self) -> bool:
        return self._writer is not None or super().holds()

    def resume(self) -> None:
        super().resume()
        self._situation = Situation.of(self._session)
        self._writer = GraphWriter(self._session, self._part.first, self._names, thread.modes.grad, thread.autocast)

    def pause(self, why: Any) -> Region | None:
        if not self._is_within or self._writer is None:
            return super().pause(why)
        reason = reason_of(why)
        if reason:
            self._note_break(reason, why)
        raise _WaitsError

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of the program's, and write it down."""
        if func.__name__ in _ENDING:
            return self._outside(func, args, kwargs)
        if self._writer is None:
            return func(*args, **kwargs)
        if not self._is_same_situation():
            self._end_part()
            self.resume()
        before = self._session.operations
        self._is_within = True
        try:
            result = func(*args, **kwargs)
        except _WaitsError:
            self._is_stopped = True
        finally:
            self._is_within = False
        if self._is_stopped:
            return self._outside(func, args, kwargs)
        self._write(func, args, kwargs, result, self._session.operations != before)
        return result

    def _outside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function between two graphs."""
        self._end_part()
        active.region = None
        try:
            return func(*args, **kwargs)
        finally:
            active.region = self
            self.resume()

    def _is_same_situation(self) -> bool:
        now, then = Situation.of(self._session), self._situation
        if now.autocast.depth > then.autocast.depth:  # the function has entered a region, which the graph enters too
            then = then._replace(autocast=now.autocast, modes=then.modes.but(autocast=now.modes.autocast))
        return now == then._replace(modes=then.modes.but(grad=now.modes.grad))

    def _write(self, func: Any, args: Any, kwargs: Any, result: Any, has_queued: bool) -> None:
        writer = self._writer
        if writer is None:
            return
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if not (has_queued or any([not writer.is_known(leaf) for leaf in leaves])):
            return
        try:
            writer.write(func, args, kwargs, result, thread.modes.grad, thread.autocast)
        except UnwritableError as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        """Leave what was queued in this part as it is."""
        counters["unimplemented"][reason] += 1
        self._writer = None

    def _end_part(self) -> None:
        """End a part: what was queued in it is taken back, and done by what the backend makes of its graph."""
        writer, self._writer = self._writer, None
        is_stopped, self._is_stopped = self._is_stopped, False
        if writer is None or not (writer.calls or is_stopped):
            super()._end_part()
            return
        try:
            self._require_same_defaults()
            made = writer.finish()
        except UnwritableError as error:
            self._give_up(str(error))
            super()._end_part()
            return
        taken: list[Any] = []
        self._session.end_part(self._part, partial(self._take, taken))
        if not writer.calls:  # all that was queued is of a function that is called again
            self._free_as(taken)
        elif taken:
            self._do(writer, made, taken)

    def _require_same_defaults(self) -> None:
        now, then = Situation.of(self._session), self._situation
        if now.default_dtype is not then.default_dtype or now.places is not then.places:
            raise UnwritableError("the default type or device has changed")

    def _take(self, taken: list[Any], queued: list[Any], first: int) -> list[Any] | None:
        """Add to ``taken`` what this thread has queued; returns what stays, None if that is all of it."""
        entries = expanded(queued)
        own = [_is_of_thread(entry) for entry in entries]
        plain = [entry[1] if entry.__class__ is tuple else entry for entry in entries]
        if any([mine and one.__class__ not in _REMOVABLE for mine, one in zip(own, plain)]):
            return None
        stays = [entry for entry, mine, one in zip(entries, own, plain) if not mine or one.__class__ is messages.Site]
        taken += [entry for entry, mine in zip(entries, own) if mine]
        return stays

    def _free_as(self, taken: Sequence[Any]) -> None:
        """Free the tensors that were there before and are freed by instructions which were taken back."""
        for entry in taken:
            for id in _freed_by(entry[1] if entry.__class__ is tuple else entry):
                if id <= self._part.first:
                    self._session.free(id)

    def _do(self, writer: GraphWriter, made: Sequence[Tensor], taken: list[Any]) -> None:
        """Do what was written down, under the modes that it was called under first."""
        try:
            with self._before():
                run = self._graphs.find(writer.graph, writer.inputs, self._situation)
        except UnwritableError as error:
            self._give_up(str(error))
            self._put_back(taken)
            return
        except BaseException:
            self._put_back(taken)
            raise
        self._free_as(taken)
        with self._before():
            become(made, results_of(run()))

    @contextmanager
    def _before(self) -> Iterator[None]:
        """Let the thread have the modes that the part began with, and nothing be written down."""
        modes, autocast, answering = thread.modes, thread.autocast, overrides.modes
        active.region, thread.modes, thread.autocast = None, self._situation.modes, self._situation.autocast
        overrides.modes = tuple([mode for mode in answering if mode is not self._mode])
        try:
            yield
        finally:
            active.region, thread.modes, thread.autocast, overrides.modes = self, modes, autocast, answering

    def _put_back(self, taken: list[Any]) -> None:
        with self._session._sending:
            self._session._pending.extend(taken)


def _is_of_thread(entry: Any) -> bool:
    return (entry[0] if entry.__class__ is tuple else DEFAULT).thread == thread.modes.thread


def _freed_by(one: Any) -> Sequence[int]:
    if one.__class__ is messages.Call:
        return one.freed
    return one.ids if one.__class__ is messages.Free else ()
