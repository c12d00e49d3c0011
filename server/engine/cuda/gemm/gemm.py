"""Matrix products on a GPU: one launch per choice of switches, made when it is first needed and then kept.

``multiplication`` makes a launch of one ``Product``, which ``solutions`` computes as the switches ask for, or, while a
tuner is on, by the solution that ``tunable`` measured to be the fastest. Knows nothing of particular operations.
"""

from __future__ import annotations

from typing import Any

from server.engine import context
from server.engine.cuda.runtime.launch import nothing
from server.engine.cuda.runtime.provisional import Provisional
from server.engine.switches import Switches
from server.engine.value import Launch, Value

from .launch import Values
from .neighbours import Algorithms
from .product import Product
from .solutions import solution_launch
from .tunable import tuned

_KEPT_LAUNCHES = 8
"""Launches that are kept per product, one for each choice of switches that it met."""


def multiplication(backend: Any, product: Product) -> Launch | None:
    """The launch of a product under the switches that are set when it runs; None if no solution can compute it."""
    if not product.out.batch * product.out.rows * product.out.columns:
        return nothing
    if product.beta == 0 and product.added is not None:
        product = product._replace(added=None)
    launches: dict[Switches, Launch] = {}
    first = _preferred(backend, product, context.current.switches, launches)
    if first is None:
        return None

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        switches = context.current.switches
        run = launches.get(switches)
        if run is None:
            if len(launches) >= _KEPT_LAUNCHES:
                launches.clear()
            run = launches[switches] = _chosen(backend, product, switches, launches, args, outs) or first
        run(args, outs)

    if context.current.switches.tuner is None:
        launches[context.current.switches] = first
    return launch


def _chosen(
    backend: Any,
    product: Product,
    switches: Switches,
    launches: dict[Switches, Launch],
    args: Values,
    outs: tuple[Value, ...],
) -> Launch | None:
    if switches.tuner is None:
        return _preferred(backend, product, switches, launches)
    return backend.at_once(tuned)(backend, product, switches, switches.tuner, args, outs)  # type: ignore[no-any-return]


def _preferred(backend: Any, product: Product, switches: Switches, launches: dict[Switches, Launch]) -> Launch | None:
    """What the switches prefer; by a neighbour's algorithm until the product has come again a few times.

    Not where results must be the same in every run: which neighbours there are depends on what was computed before.
    """
    algorithms = Algorithms(borrows=not switches.deterministic_algorithms)
    launch = solution_launch(backend, product, switches, None, algorithms)
    if launch is None or not algorithms.borrowed:
        return launch

    def ask() -> Launch | None:
        asked = solution_launch(backend, product, switches, None)
        if asked is not None:
            launches[switches] = asked
        return asked

    return Provisional(backend, launch, ask)
