"""A call whose Python is left out: what it takes, which run of a program stands for it, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from telegrad._native.binding import ids_of, match_arguments, new_tensor
from telegrad._session.catching.prompt_errors import ALWAYS, wait_where_caught
from telegrad._session.parts.template_runs import TemplateTexts
from telegrad._tensor.autograd_graph import Aliases, GradientEdge, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import wire
from telegrad_protocol.programs.rows import Flat, Template

from . import purity
from .arguments import Arguments
from .gradients import Found, change, hold
from .history import History
from .notes import Notes
from .plain_run import ImpureError, PlainRun
from .situation import Situation


class Made:
    """What a call's results are made of: its arguments, the nodes of its history, and results that were made before."""

    __slots__ = ("nodes", "results", "tensors")

    def __init__(self, tensors: list[Tensor], nodes: Mapping[int, GradientEdge]) -> None:
        self.tensors, self.nodes = tensors, nodes
        self.results: dict[int, Tensor] = {}


Maker = Callable[[int, Made], Any]
"""Makes a part of what a call returns, given its first number."""


class _Record:
    """Stands for calls with such arguments, as long as the conditions hold."""

    def __init__(
        self, situation: Situation, arguments: Arguments, notes: Notes, run: PlainRun, inputs: list[int], first: int,
        result: Any,
    ) -> None:  # fmt: skip
        """Make the record of a call that was watched: its inputs' and first numbers, and its result.

        ``run`` is an earlier call that sent the same. Raises ImpureError where the call cannot be left out.
        """
        self._situation, self._arguments = situation, arguments
        self._flat = Flat(run.instructions, run.first)
        self._count, self._unfreed, self._may_fail = run.count, run.unfreed, run.may_fail
        places = {tensor._id: place for place, tensor in enumerate(arguments.tensors)}
        of_leaves = [number for number in inputs if number in notes.gradients.by_number]
        leaves = [notes.gradients.by_number[number] for number in of_leaves]
        sources = {**places, **{number: len(arguments.tensors) + place for place, number in enumerate(of_leaves)}}
        self._inputs = tuple([_source(number, sources, notes) for number in inputs])
        self._others = frozenset([id(tensor) for tensor in notes.tensors.values()])
        if not (arguments.are_unchanged() and notes.have_kept_histories()):
            raise ImpureError("it changes what is known of tensors that were there before")
        if notes.conditions.reads_changes or any([scaler._progress for scaler in notes.scalers.values()]):
            raise ImpureError("it reads what it has changed, or leaves a scaler before its update")
        if situation != Situation.of(situation.session):
            raise ImpureError("it leaves other modes than it has met")
        results = _Results(first, places, notes, History(arguments.tensors, list(notes.tensors.values())))
        self._result = results.maker(result)
        self._effects = [effect.prepared(results.maker) for effect in notes.effects]
        self._history = results.history
        self._history.settle()
        rows = notes.gradients.rows(first)
        computed = {distance for _, _, _, distance in rows if distance}
        if results.distances | computed != run.left or not results.distances.isdisjoint(computed):
            raise ImpureError("tensors are left that it does not return, or gradients are returned")
        self._gradients = tuple([part for row in rows for part in row])
        numbers = {id(row[0]): number for number, row in enumerate(rows)}
        self._taken = [numbers[id(leaf)] for leaf in leaves]
        """The rows of leaves whose gradients are inputs, in this order."""
        self._holds = notes.conditions.check()
        self.failed = 0
        """How often in a row its conditions did not hold."""
        self._rows = None if match_arguments is None else arguments.rows()
        arguments.forget_tensors()

    def tensors_of(self, situation: Situation, args: Any, kwargs: Any) -> list[Tensor] | None:
        """Return the tensors among arguments, if C finds these alike; else ``matches`` is to say whether they are."""
        if self._rows is None or match_arguments is None or self._situation != situation:
            return None
        tensors = match_arguments(*self._rows, args, kwargs)
        return tensors if tensors is not None and self._are_others(tensors) else None

    def matches(self, situation: Situation, given: Arguments) -> bool:
        """Whether a call takes what the watched one took, in the same situation; conditions are not looked at."""
        return self._situation == situation and self._arguments.equal(given) and self._are_others(given.tensors)

    def _are_others(self, tensors: list[Tensor]) -> bool:
        """Whether arguments are none of the tensors that are read elsewhere."""
        return not (tensors and self._others) or self._others.isdisjoint(map(id, tensors))

    def found(self) -> Found | None:
        """Return the gradients that the call takes or drops; None if conditions, or what the server knows, are others.

        Nothing but the leaves refers to those that die in the call.
        """
        try:
            holds = self._is_known() and self._holds() and all([effect.may() for effect in self._effects])
            found = self._gradients_found() if holds else None
        except Exception:  # what an attribute raises that has become a property
            found = None
        self.failed = 0 if found is not None else self.failed + 1
        return found

    def replay(self, tensors: list[Tensor], found: Found) -> Any:
        """Queue what the call would have queued, and return what it would have returned."""
        given = [*tensors, *[found[row] for row in self._taken]] if self._taken else tensors
        first = self._queue(_ids_of(self._inputs, given), found)
        made = Made(tensors, self._history.made(tensors))
        result = self._result(first, made)
        for effect in self._effects:
            effect.act(first, made)
        if self._may_fail:
            wait_where_caught(self._situation.session, ALWAYS)
        return result

    def _is_known(self) -> bool:
        return True

    def _gradients_found(self) -> Found | None:
        return hold(self._gradients, self._situation.session) if self._gradients else []

    def _queue(self, inputs: list[int], found: Found) -> int:
        """Queue the call's instructions with these inputs; returns the number before those of what they make."""
        raise NotImplementedError


class OuterRecord(_Record):
    """Of calls of compiled functions, which are one run of a program."""

    def __init__(self, *about: Any) -> None:
        *observed, self._program, self._modes = about
        super().__init__(*observed)
        _, _, notes, run, *_ = observed
        positions = run.rates()
        if len(positions) != len(notes.rates):
            raise ImpureError("an optimizer's step is more than an operation for each group")
        pairs = [(group, position) for group, position in zip(notes.rates, positions) if group is not None]
        if any([position is None for _, position in pairs]):
            raise ImpureError("an optimizer's step takes another learning rate than that of its group")
        self._rates = pairs
        """Groups of optimizers, with the places of their learning rates among the constants."""
        self._encoded_rates = b""
        self._constants = self._flat.constants
        self._encoded = wire.encoder.encode(self._constants)

    def _is_known(self) -> bool:
        return self._situation.session.programs.knows(self._program)

    def _queue(self, inputs: list[int], found: Found) -> int:
        session = self._situation.session
        if self._rates:
            self._take_rates()
        done = partial(self._change_gradients, found) if self._gradients else None
        return session.run_again(
            self._program, inputs, self._constants, self._encoded, self._count, self._modes, done
        )  # fmt: skip

    def _gradients_found(self) -> Found | None:
        if not all([group["lr"].__class__ is float for group, _ in self._rates]):
            return None
        return super()._gradients_found()

    def _change_gradients(self, found: Found, first: int) -> None:
        """Give leaves the gradients that they have after the call."""
        change(self._gradients, self._situation.session, first, found)

    def _take_rates(self) -> None:
        """Take the learning rates over that groups have by now."""
        rates = [group["lr"] for group, _ in self._rates]
        encoded = wire.encoder.encode(rates)
        if encoded == self._encoded_rates:
            return
        self._constants = constants = self._constants.copy()
        for rate, (_, place) in zip(rates, self._rates):
            constants[place] = [rate] if constants[place].__class__ is list else rate
        self._encoded, self._encoded_rates = wire.encoder.encode(constants), encoded


class InnerRecord(_Record):
    """Of calls of layers in compiled functions, whose instructions become a part of the function's."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        flat = self._flat
        self._texts = TemplateTexts(Template(len(flat.inputs), flat.rows, flat.constants))

    def _queue(self, inputs: list[int], found: Found) -> int:
        situation = self._situation
        return situation.session.queue_again(self._texts, inputs, self._count, self._unfreed, situation.modes)


def _ids_in_python(sources: tuple[Any, ...], tensors: list[Any]) -> list[int]:
    """Return the numbers of tensors, each of which is given, or by its place among the others."""
    return [tensors[one]._id if one.__class__ is int else one._id for one in sources]


_ids_of: Final = ids_of or _ids_in_python


def _source(id: int, places: dict[int, int], notes: Notes) -> Any:
    """Return where an input comes from: the place of an argument, or the tensor itself."""
    if id in places:
        return places[id]
    if id not in notes.tensors:
        raise ImpureError("it takes a tensor that came from where it was not seen")
    return notes.tensors[id]


class _Results:
    """Makes the makers of what a call returns; ``distances`` are the numbers of results, less the first one."""

    def __init__(self, first: int, places: dict[int, int], notes: Notes, history: History) -> None:
        self._first, self._places, self._notes, self.history = first, places, notes, history
        self.distances: set[int] = set()

    def maker(self, value: Any) -> Maker:
        """Return what makes a value like this one; raises ImpureError for values of other kinds."""
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        kind = value.__class__
        if kind in purity.CONSTANTS:
            return lambda first, made: value
        if (kind is dict or kind is list) and id(value) not in self._notes.returned:
            raise ImpureError(f"it returns a {kind.__name__} that was there before")
        if kind is dict:
            entries = {key: self.maker(one) for key, one in value.items()}
            return lambda first, made: {key: make(first, made) for key, make in entries.items()}
        if kind in (list, tuple) or purity.is_named_tuple(kind):
            return _of_sequence(kind, [self.maker(one) for one in value])
        raise ImpureError(f"it returns a {kind.__name__}")

    def _of_tensor(self, tensor: Tensor) -> Maker:
        id = tensor._id
        if id in self._places:
            place = self._places[id]
            return lambda first, made: made.tensors[place]
        if id in self._notes.tensors:
            return lambda first, made: tensor
        if id <= self._first or tensor.__class__ is not Tensor or not _is_plain(tensor):
            raise ImpureError("it returns a tensor that is not only a result")
        return self._of_result(tensor)

    def _of_result(self, tensor: Tensor) -> Maker:
        """Return what makes a result, which may be a view of another one or of an argument."""
        distance, session, meta = tensor._id - self._first, tensor._session, tensor._meta
        self.distances.add(distance)
        base = None if tensor._base is None else self._of_tensor(tensor._base)
        node = self.history.add(tensor._node) if tensor._requires_grad and tensor._node is not None else None
        is_inference = tensor._is_inference

        def make(first: int, made: Made) -> Tensor:
            known = made.results.get(distance)
            if known is not None:
                return known
            result = made.results[distance] = new_tensor(session, first + distance, meta)
            if is_inference:
                result._is_inference = True
            if node is not None:
                result._requires_grad, result._node = True, made.nodes[node]
            if base is not None:
                _join(result, base(first, made))
            return result

        return make


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is what an operation returns: without a gradient or attributes of the program's."""
    has_own = any([name != "_is_inference" for name in tensor.__dict__])
    has_node = isinstance(tensor._node, OperationNode)
    return tensor._grad is None and not has_own and has_node is tensor._requires_grad


def _of_sequence(kind: Any, makers: list[Maker]) -> Maker:
    if kind is list:
        return lambda first, made: [make(first, made) for make in makers]
    join = tuple if kind is tuple else kind._make
    return lambda first, made: join([make(first, made) for make in makers])


def _join(view: Tensor, root: Tensor) -> None:
    """Let a view share what its base and all other views of it share; the base of a view of a view is that view's."""
    root = root if root._base is None else root._base
    aliases = root._aliases
    if aliases is None:
        aliases = root._aliases = Aliases()
    view._base, view._aliases, view._seen = root, aliases, aliases.version
