"""Loops over few elements of operands on the host, in C where that is compiled; NumPy computes the same.

A loop is told by its name, by where the addresses of operands and results come from, and by numbers: layouts and
constants. Knows no operations.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from server.engine.in_c.values import module
from server.engine.operators import Request, Run
from server.engine.value import Backend, Launch
from telegrad_protocol.meta import Meta

ARGUMENT: Final = 0
RESULT: Final = 1
CONSTANT: Final = 2
MOST_PLACES: Final = 40
"""Loops of more operands are NumPy's."""


class Place(NamedTuple):
    """Where the address of an operand comes from: an argument or a result, or an item of a list among the arguments.

    ``offset`` is in bytes from where the memory begins; of a constant it is its place among the numbers.
    """

    source: int
    number: int = 0
    item: int = -1
    offset: int = 0


class Loop(NamedTuple):
    """A loop in C by its name, its operands, and its numbers.

    ``is_elementwise``: each element of the result depends on the elements of operands at the same position alone.
    """

    name: str
    places: Sequence[Place]
    numbers: Sequence[int]
    is_elementwise: bool = False


FACTORIES: Final[dict[str, Callable[[Request], Loop | None]]] = {}
"""What makes the loop of an operation on operands of given metas, by the operation's name; None for others."""


class Counted(NamedTuple):
    """A loop whose result has as many elements, or rows of elements, as data says.

    The first place is not looked up: it is the result's. ``meta_of`` returns the meta of so many, which take
    ``nbytes`` each.
    """

    loop: Loop
    nbytes: int
    meta_of: Callable[[int], Meta]


def is_there() -> bool:
    """Whether loops are compiled."""
    return module is not None


def _words(loop: Loop, places: Sequence[Place]) -> bytes:
    return array("q", chain(*places, loop.numbers)).tobytes()


def launch_of(loop: Loop, otherwise: Launch) -> Launch | None:
    """Return what executes a loop on operands and results, and ``otherwise`` where it cannot; None for too many."""
    if len(loop.places) > MOST_PLACES:
        return None
    return module.small_launch(loop.name, len(loop.places), _words(loop, loop.places), otherwise)  # type: ignore[no-any-return]


def run_counted(counted: Counted, backend: Backend, otherwise: Run) -> Run:
    """Return what executes a loop whose result has as many elements as data says, and returns that result.

    ``otherwise`` runs where it cannot, and where there is no element.
    """
    loop, needed = counted.loop, (otherwise, backend, backend.key, counted.nbytes, counted.meta_of)
    return module.small_launch(loop.name, len(loop.places), _words(loop, loop.places), needed, None)  # type: ignore[no-any-return]


def run_in_place(loop: Loop, otherwise: Run) -> Run | None:
    """Return what executes a loop whose result is the first operand, and returns that; None for too many operands.

    ``otherwise`` runs where another operand shares the memory that is written, unless an element-wise loop may do so.
    """
    if len(loop.places) > MOST_PLACES:
        return None
    places = [place._replace(source=ARGUMENT, number=0) if place.source == RESULT else place for place in loop.places]
    words = _words(loop, places)
    return module.small_launch(loop.name, len(places), words, otherwise, not loop.is_elementwise)  # type: ignore[no-any-return]
