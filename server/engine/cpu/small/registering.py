"""How loops over few elements are registered: for new results, and for the first operand in place.

A factory gets a `Request` and returns the loop, or None for operands that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine import keys
from server.engine.generic_kernels.direct_runs import call_of
from server.engine.in_c import small as small_in_c
from server.engine.in_c.small import Counted, Loop
from server.engine.operators import OPERATORS, Request, Run
from server.engine.registry import finds, prepares
from server.engine.value import Launch
from telegrad_protocol.meta import CPU
from telegrad_protocol.ops import Op

Factory = Callable[[Request], Loop | None]
CountedFactory = Callable[[Request], Counted | None]


def small(*contracts: Op, in_place: bool = True) -> Callable[[Factory], Factory]:
    """Register a factory of loops for operations on the host.

    Without ``in_place`` the loops read the first operand after they have written into the result.
    """

    def register(factory: Factory) -> Factory:
        for contract in contracts:
            prepares(contract, keys.CPU)(_launches(factory))
            if in_place:
                small_in_c.FACTORIES[contract.name] = factory
        return factory

    return register


def counted(contract: Op) -> Callable[[CountedFactory], CountedFactory]:
    """Register a factory of loops whose results have as many elements as data says."""

    def register(factory: CountedFactory) -> CountedFactory:
        @finds(contract, keys.CPU)
        def found(request: Request, generic: Run) -> Run | None:
            loop = factory(request) if small_in_c.is_there() and request.backend.device is CPU else None
            return None if loop is None else small_in_c.run_counted(loop, request.backend, generic)

        return factory

    return register


def _launches(factory: Factory) -> Callable[[Request], Launch | None]:
    def prepared(request: Request) -> Launch | None:
        loop = factory(request) if small_in_c.is_there() and request.backend.device is CPU else None
        otherwise = None if loop is None else _arrays_launch(request)
        return None if loop is None or otherwise is None else small_in_c.launch_of(loop, otherwise)

    return prepared


def _arrays_launch(request: Request) -> Launch | None:
    """What computes the same with arrays of NumPy; None where kernels want more than arrays."""
    op, info = request.op, OPERATORS[request.op.name].kernels[keys.CPU]
    names = tuple([param.name for param in op.params[op.positional :]])
    kernel = call_of(info, request.backend, names, request.args, {})
    if kernel is None:
        return None
    call, is_single = kernel.call, len(request.outs) == 1

    def launch(args: Any, values: Any) -> None:
        call(args, out=values[0].array if is_single else tuple([value.array for value in values]))

    return launch
