"""Calls that differ from earlier ones in floats alone, such as learning rates and bias corrections.

Launches that read their numbers in each call serve all of them by one run, which is kept by a general key: the key of a
call with the class of floats in place of those that vary. Knows nothing of kernels, nor of autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from server.engine.operators import CacheKey, Operator, Run
from server.engine.plan import Plan, plan_of
from server.engine.signature import signature_of

from .remembered import latest, remember, remember_latest

Around: TypeAlias = Callable[[Operator, Plan], Run]
"""Returns what executes an operation with something around the run of a plan whose numbers are read in each call."""
_LEAST: Final = 1e-30
_GREATEST: Final = 1e30
_GREATEST_SPECIAL: Final = 4.0


def varies(number: Any) -> bool:
    """Whether a number is a float for which calls may share what is kept.

    Small multiples of one half may have an expression of their own, such as factors of 1 and powers of 2. Numbers that
    single precision does not hold as normal ones, infinities and what is not a number are dealt with one by one.
    """
    if number.__class__ is not float:
        return False
    size = abs(number)
    return _LEAST < size < _GREATEST and (size > _GREATEST_SPECIAL or 2 * size % 1 != 0)


def general_key(key: CacheKey) -> CacheKey | None:
    """Return the key of all calls that differ from one in floats that vary; None where it has no such float.

    The last item of a key has the arguments that are no tensors.
    """
    if not any(map(varies, key[-1])):
        return None
    return (*key[:-1], tuple([float if varies(item) else item for item in key[-1]]))


def run_of_any_numbers(
    operator: Operator, args: tuple[Any, ...], key: CacheKey, around: Around | None = None
) -> Run | None:
    """Return what executes a call whatever floats that vary it has; None where the call is the first of its kind.

    It is made when a second call has other numbers, and kept by the general key, together with what is done ``around``
    it if that is given. None too where no launch reads numbers.
    """
    general = general_key(key)
    if general is None:
        return None
    if around is not None:
        general = (general, around)
    run: Run | None = operator.runs.get(general)
    if run is not None:
        return run
    seen = latest.get(general)
    if seen is None:
        remember_latest(general, key)
    if seen is None or seen in (key, general):
        return None
    plan = plan_of_any_numbers(operator, args)
    if plan is None:
        latest[general] = general  # do not try again soon
        return None
    latest.pop(general, None)
    run = plan.run if around is None else around(operator, plan)
    remember(operator.runs, general, run)
    return run


def plan_of_any_numbers(operator: Operator, args: tuple[Any, ...]) -> Plan | None:
    """Return a plan whose launches read floats that vary in each call; None where no kernel does."""
    plan = Plan(operator, args, exact := partial(_by_its_plan, operator))
    return None if plan.run is exact else plan


def _by_its_plan(operator: Operator, args: tuple[Any, ...]) -> Any:
    """Execute a call by a plan of its own numbers."""
    return plan_of(operator, args, signature_of(operator, args)[1]).run(args)
