"""The dispatcher: from an operation and its arguments to the kernel of the highest key.

The key set of a call is the union of its values' keys, plus the keys that modes include, minus those they exclude. Each
kernel may redispatch below its own key. What a key set resolves to is cached per operation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import attrgetter, is_, or_
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.errors import AutogradError

from . import context, keys
from .operators import OPERATORS, Operator
from .plan import metas_of, remember, run_backend
from .prepared import Run
from .value import Value

Arguments = tuple[Any, ...]
Boxed = Callable[[Operator, Arguments, tuple[Any, ...], int], Any]

BOXED: dict[int, Boxed] = {}
"""One kernel per mode-like key, for all operations; keys without an entry fall through."""

READY: dict[Boxed, Callable[[Operator, int, tuple[Any, ...]], Run | None]] = {}
"""For kernels that can tell beforehand what they do for one signature: what makes a function of it, if it can."""

_SELECTED: dict[int, Callable[[Operator, int], bool]] = {}


def select_by(key: int, concerns: Callable[[Operator, int], bool]) -> None:
    """Let a mode-like key's kernel run only for operations, with their key sets, that it concerns."""
    _SELECTED[key] = concerns


_SCALARS = frozenset((bool, int, float, complex))
_SIGNED = frozenset((float, complex))
"""Numbers of which 0 and -0 are equal and not the same."""


def dispatch(operator: Operator, args: Arguments) -> Any:
    """Run an operation on bound arguments: values, tuples of values, and attributes in declared order."""
    kinds = tuple(map(type, args))
    way = operator.plans.get(kinds)
    return way(args) if way is not None else _dispatch_first(operator, args, kinds)


def _dispatch_first(operator: Operator, args: Arguments, kinds: tuple[type, ...]) -> Any:
    """Arguments of classes that were not met before; what is not always told apart by their values has no way."""
    if operator.op.updates:
        return dispatch_anew(operator, args)
    result = dispatch_anew(operator, args)
    remember(operator, kinds, _way(operator, kinds))
    return result


def dispatch_anew(operator: Operator, args: Arguments) -> Any:
    """Dispatch by what the arguments are described as, whatever came before."""
    return _run(operator, args, *describe(operator, args))


def settle(operator: Operator, args: Arguments, key: tuple[Any, ...]) -> Any:
    """Dispatch, and remember by ``key`` what ran, unless somebody watches each step."""
    key_set, signature = describe(operator, args)
    result = _run(operator, args, key_set, signature)
    run = run_of(operator, key_set, signature) if context.current.trace is None else None
    if run is not None:
        remember(operator, key, run)
    return result


def _run(operator: Operator, args: Arguments, key_set: int, signature: tuple[Any, ...]) -> Any:
    trace = context.current.trace
    if trace is not None:
        trace.append(f"[call] op={operator.op.name}, keys=[{keys.spell(key_set)}]")
    kernel = operator.resolved.get(key_set) or resolve(operator, key_set)
    return kernel(operator, args, signature, key_set)


def _way(operator: Operator, kinds: tuple[type, ...]) -> Run:
    """How arguments of these classes are told apart in one step: a key of all that decides how the operation runs."""
    if any([kind is tuple and param.kind.holds_tensors for kind, param in zip(kinds, operator.op.params)]):
        return partial(dispatch_anew, operator)
    values = [position for position, kind in enumerate(kinds) if kind is Value]
    signed = [position for position, kind in enumerate(kinds) if kind in _SIGNED]
    mark, plans = object(), operator.plans

    def one(args: Arguments) -> Any:
        ctx = context.current
        value = args[0]
        key = (mark, dtypes._default, (ctx.included | value.keys) & ~ctx.excluded, value.meta, args[1:])
        known = plans.get(key)
        if known is None or ctx.trace is not None:
            return settle(operator, args, key)
        return known(args)

    def several(args: Arguments) -> Any:
        ctx = context.current
        key_set, read = ctx.included, list(args)
        for position in values:
            value = args[position]
            key_set |= value.keys
            read[position] = value.meta
        for position in signed:
            if not args[position] or args[position].__class__ is complex:
                read.append(repr(args[position]))
        key = (mark, dtypes._default, key_set & ~ctx.excluded, tuple(read))
        known = plans.get(key)
        if known is None or ctx.trace is not None:
            return settle(operator, args, key)
        return known(args)

    return one if values == [0] and not signed else several


def describe(operator: Operator, args: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    """The keys of a call, and its signature: all else that says how it is to run."""
    ctx = context.current
    if operator.is_unary:
        value = args[0]
        return (ctx.included | value.keys) & ~ctx.excluded, (dtypes._default, value.meta, args[1:])
    read: list[Any] = [dtypes._default]
    key_set = ctx.included
    for arg in args[: operator.leading]:
        if arg.__class__ is Value:
            key_set |= arg.keys
            read.append(arg.meta)
        else:
            read.append(arg)
            if arg is not None:
                read.append(told_apart(arg))
    if operator.readings:
        key_set |= _read_mixed(operator, args, read)
    if operator.tail < len(args):
        read.append(args[operator.tail :])
        for position in operator.scalars:
            arg = args[position]
            read.append(arg.__class__ if arg and arg.__class__ is not complex else told_apart(arg))
    return key_set & ~ctx.excluded, tuple(read)


def run_of(operator: Operator, key_set: int, signature: tuple[Any, ...]) -> Run | None:
    """What runs calls of these keys and this signature, one of which was dispatched; None if it was not kept.

    It traces nothing.
    """
    kernel = operator.resolved.get(key_set)
    if kernel is run_backend:
        plan = operator.plans.get(signature)
        return None if plan is None else plan.run
    if kernel is None:
        return None
    ready = READY.get(kernel)
    run = None if ready is None else ready(operator, key_set, signature)
    return run or (lambda args: kernel(operator, args, signature, key_set))


def _read_mixed(operator: Operator, args: tuple[Any, ...], signature: list[Any]) -> int:
    """Describe the arguments between leading tensors and tail, whatever they are.

    Of what updates leaves, rates and the like change from step to step, and kernels read them each time: only whether
    such a number is 0 decides which plan runs.
    """
    key_set = 0
    for arg, is_plain in zip(args[operator.leading :], operator.readings):
        kind = arg.__class__
        if kind is Value:
            key_set |= arg.keys
            signature.append(arg.meta)
        elif is_plain or arg is None:
            signature.append(arg)
        elif kind is tuple:
            key_set |= _read_tuple(arg, signature)
        else:
            signature.append(float if kind is float and arg and operator.op.updates else arg)
            signature.append(kind if arg and kind is not complex else told_apart(arg))
    return key_set


def told_apart(item: Any) -> Any:
    """What equal numbers that mean different things differ in: their type, and the signs of zeros."""
    kind = item.__class__
    return repr(item) if kind in _SIGNED else kind


_holds_values = frozenset((Value,)).issuperset
_meta_of, _keys_of = attrgetter("meta"), attrgetter("keys")


def _read_tuple(items: tuple[Any, ...], signature: list[Any]) -> int:
    if _holds_values(map(type, items)):
        signature.append(tuple(map(_meta_of, items)))
        return reduce(or_, map(_keys_of, items), 0)
    key_set = 0
    described = []
    for item in items:
        if item.__class__ is Value:
            key_set |= item.keys
            described.append(item.meta)
        else:
            described.append(item)
            described.append(told_apart(item))
    signature.append(tuple(described))
    return key_set


def redispatch(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    """Run the kernel of the highest key in ``key_set``, which a kernel has masked below its own key."""
    return descend(operator, key_set)(operator, args, signature, key_set)


def descend(operator: Operator, key_set: int) -> Boxed:
    """The kernel that ``redispatch`` runs."""
    trace = context.current.trace
    if trace is not None:
        trace.append(f"[redispatch] op={operator.op.name}, keys=[{keys.spell(key_set)}]")
    return operator.resolved.get(key_set) or resolve(operator, key_set)


def resolve(operator: Operator, key_set: int) -> Boxed:
    """Find the kernel of a key set: the highest key that has one."""
    kernel = operator.resolved[key_set] = _find(operator, key_set)
    return kernel


def _find(operator: Operator, key_set: int) -> Boxed:
    present = [key for key in keys.FROM_THE_TOP if key_set & key]
    for key in present:
        if key > keys.AUTOGRAD and key in BOXED and (key not in _SELECTED or _SELECTED[key](operator, key_set)):
            return BOXED[key]
    if operator.composite is not None:
        return _run_composite if operator.keyword_names else _run_positional_composite
    if OPERATORS[operator.op.base.name].composite is not None:
        return _run_composite_form
    return next((BOXED[key] for key in present if key in BOXED and key not in _SELECTED), run_backend)


def _run_positional_composite(
    operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int
) -> Any:
    if signature not in operator.plans:
        _check_once(operator, args, signature)
    return operator.composite(*args)  # type: ignore[misc]


def _ready_composite(operator: Operator, key_set: int, signature: tuple[Any, ...]) -> Run | None:
    """A composite whose shape rule was run."""
    composite = operator.composite
    return None if composite is None or signature not in operator.plans else lambda args: composite(*args)


READY[_run_positional_composite] = _ready_composite


def _check_once(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...]) -> None:
    """Run a composite's shape rule, which no plan does for it."""
    operator.op.infer(metas_of(args))
    remember(operator, signature, True)


def _run_composite(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    if signature not in operator.plans:
        _check_once(operator, args, signature)
    positional = operator.op.positional
    keywords = dict(zip(operator.keyword_names, args[positional:], strict=True))
    return operator.composite(*args[:positional], **keywords)  # type: ignore[misc]


def _run_composite_form(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    """The in-place or ``out=`` form of a composite: compute the result, then copy it into its target."""
    op = operator.op
    operator.op.infer(metas_of(args))
    found = dispatch(OPERATORS[op.base.name], args[: len(op.base.params)])
    results = found if found.__class__ is tuple else (found,)
    if op.form == "out" and any(r.autograd is not None and r.autograd.requires_grad for r in results):
        raise AutogradError(f"{op.public}: out= does not support differentiation, but an operand requires grad")
    targets = tuple([args[position] for position in op.mutates])
    for target, result in zip(targets, results, strict=True):
        call(OPERATORS["copy_"], (target, result), {})
    return targets if found.__class__ is tuple else targets[0]


def is_value(item: Any) -> bool:
    """The tensor predicate of the engine."""
    return item.__class__ is Value


def call(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Bind Python arguments to the contract and dispatch; how formulas and composites call operations."""
    if not kwargs:
        sizes = operator.accepted.get(tuple(map(type, args)))
        if sizes is not None and (not sizes or _are_sizes(args, sizes)):
            return dispatch(operator, args + operator.defaults[len(args) :])
    bound = operator.op.bind(args, kwargs)
    if not all(map(_is_canonical, bound, operator.canonical)):
        bound = operator.op.normalize(bound, is_value)
    elif not kwargs and all(map(is_, args, bound)):
        operator.accepted[tuple(map(type, args))] = tuple(p for p, arg in enumerate(args) if arg.__class__ is tuple)
    return dispatch(operator, bound)


_holds_integers = frozenset((int,)).issuperset


def _are_sizes(args: tuple[Any, ...], positions: tuple[int, ...]) -> bool:
    return all([_holds_integers(map(type, args[position])) for position in positions])


def _is_canonical(argument: Any, canonical: frozenset[type]) -> bool:
    kind = argument.__class__
    return kind in canonical and (kind is not tuple or _holds_integers(map(type, argument)))
