"""The dispatcher: from an operation and its arguments to the kernel of the highest key.

The key set of a call is the union of its values' keys, plus the keys that modes include, minus those they exclude. Each
kernel may redispatch below its own key. What a key set resolves to is cached per operation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any

from telegrad_protocol.errors import AutogradError

from . import context, keys
from .in_c.signatures import dispatching
from .lookup import Layout, make_lookup
from .operators import OPERATORS, CacheKey, Operator, Run, Signature
from .plan import run_backend
from .replay.remembered import latest, remember, remember_latest
from .replay.varying import Around, run_of_any_numbers
from .signature import SIGNED, metas_of, signature_of
from .value import Value

Arguments = tuple[Any, ...]
Boxed = Callable[[Operator, Arguments, tuple[Any, ...], int], Any]

BOXED: dict[int, Boxed] = {}
"""One kernel for all operations, by mode-like key; keys without an entry are skipped."""

SPECIALIZERS: dict[Boxed, Callable[[Operator, int, Signature], Run | None]] = {}
"""By boxed kernel, what makes a function of the kernel for one key set and signature, or None where it cannot."""

AROUND_ANY_NUMBERS: dict[Boxed, Callable[[Operator, int], Around | None]] = {}
"""By boxed kernel, what tells for a key set what the kernel does around the run of a plan whose numbers vary."""

_OF_ANY_NUMBERS: tuple[()] = ()
"""What is kept of a latest call that was executed by its general key: it has no plan of its own."""
_SELECTED: dict[int, Callable[[Operator, int], bool]] = {}
"""By mode-like key, whether its kernel runs for an operation and key set; other keys' kernels run for all."""


def select_by(key: int, concerns: Callable[[Operator, int], bool]) -> None:
    """Let the kernel of a mode-like key run only for those operations and key sets that it concerns."""
    _SELECTED[key] = concerns


def dispatch(operator: Operator, args: Arguments) -> Any:
    """Run an operation on bound arguments: values, tuples of values, and attributes in declared order."""
    classes = tuple(map(type, args))
    lookup = operator.lookups.get(classes)
    return lookup(args) if lookup is not None else _dispatch_first(operator, args, classes)


def _dispatch_first(operator: Operator, args: Arguments, classes: tuple[type, ...]) -> Any:
    """Dispatch a call whose arguments are of classes that were not met before, and make a lookup for the next ones.

    Operations that update leaves have none: which numbers matter to them depends on the signature.
    """
    result = dispatch_uncached(operator, args)
    if not operator.op.updates:
        remember(operator.lookups, classes, _lookup(operator, classes))
    return result


dispatch = dispatching(_dispatch_first) or dispatch


def dispatch_uncached(operator: Operator, args: Arguments, table: Any = None) -> Any:
    """Dispatch by key set and signature, without a lookup; ``table`` is not used."""
    return _run(operator, args, *signature_of(operator, args))


def dispatch_and_cache(operator: Operator, args: Arguments, key: CacheKey) -> Any:
    """Dispatch, and keep by ``key`` what executes such calls, unless each step is to be traced.

    Most calls that are new never come again: of those that left a plan, or passed a shape rule, no more is kept until
    they do, but for the signatures of the latest.
    """
    untraced = context.current.trace is None
    if untraced and operator.reads_numbers:
        run = _run_of_any_numbers(operator, args, key)
        if run is not None:
            return run(args)
    seen = latest.pop(key, None) if untraced else None
    if seen:
        run = _keep(operator, args, key, *seen)
        if run is not None:
            return run(args)
    key_set, signature = signature_of(operator, args)
    is_new = signature not in operator.plans and signature not in operator.checked
    result = _run(operator, args, key_set, signature)
    if is_new and (signature in operator.plans or signature in operator.checked):
        if untraced:
            remember_latest(key, (key_set, signature))
    elif untraced:
        _keep(operator, args, key, key_set, signature)
    return result


def _run_of_any_numbers(operator: Operator, args: Arguments, key: CacheKey) -> Run | None:
    """What executes a call whatever its floats are, where nothing but a kernel of a backend does, or one around it.

    Of those around it some do more for calls that come again: such calls are not found by their general key.
    """
    key_set = signature_of(operator, args)[0]
    kernel = operator.resolved.get(key_set)
    if kernel is run_backend and key_set & operator.reads_numbers:
        return run_of_any_numbers(operator, args, key)
    around = AROUND_ANY_NUMBERS.get(kernel) if key_set & operator.reads_numbers and key not in latest else None  # type: ignore[arg-type]
    wrap = around(operator, key_set) if around is not None else None
    run = None if wrap is None else run_of_any_numbers(operator, args, key, wrap)
    if run is not None:
        remember_latest(key, _OF_ANY_NUMBERS)
    return run


def _keep(operator: Operator, args: Arguments, key: CacheKey, key_set: int, signature: Signature) -> Run | None:
    """Keep by ``key`` what executes calls of a signature that came before, and return it."""
    run = _single(operator, args, key_set) or specialized(operator, key_set, signature)
    if run is not None:
        remember(operator.runs, key, run)
    return run


def _run(operator: Operator, args: Arguments, key_set: int, signature: Signature) -> Any:
    trace = context.current.trace
    if trace is not None:
        trace.append(f"[call] op={operator.op.name}, keys=[{keys.spell(key_set)}]")
    kernel = operator.resolved.get(key_set) or resolve(operator, key_set)
    return kernel(operator, args, signature, key_set)


def _lookup(operator: Operator, classes: tuple[type, ...]) -> Run:
    """The lookup of bound arguments of these classes."""
    params = operator.op.params
    lists = tuple([p for p, kind in enumerate(classes) if kind is tuple and params[p].kind.holds_tensors])
    tensors = tuple([position for position, kind in enumerate(classes) if kind is Value])
    signed = tuple([position for position, kind in enumerate(classes) if kind in SIGNED])
    return make_lookup(
        operator, Layout(tensors, signed, lists=lists), partial(dispatch_uncached, operator), dispatch_and_cache
    )


def specialized(operator: Operator, key_set: int, signature: Signature) -> Run | None:
    """The function that executes calls of these keys and this signature, one of which was dispatched before.

    None if the plan of that call was not kept. The function writes no trace.
    """
    kernel = operator.resolved.get(key_set)
    if kernel is run_backend:
        plan = operator.plans.get(signature)
        return None if plan is None else plan.run
    if kernel is None:
        return None
    specialize = SPECIALIZERS.get(kernel)
    run = None if specialize is None else specialize(operator, key_set, signature)
    return run or (lambda args: kernel(operator, args, signature, key_set))


def redispatch(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    """Run the kernel of the highest key in ``key_set``, which a kernel has masked below its own key."""
    return descend(operator, key_set)(operator, args, signature, key_set)


def descend(operator: Operator, key_set: int) -> Boxed:
    """Return the kernel that ``redispatch`` runs, and write the trace."""
    trace = context.current.trace
    if trace is not None:
        trace.append(f"[redispatch] op={operator.op.name}, keys=[{keys.spell(key_set)}]")
    return operator.resolved.get(key_set) or resolve(operator, key_set)


def resolve(operator: Operator, key_set: int) -> Boxed:
    """Find the kernel of the highest key in a key set that has one, and keep it."""
    kernel = operator.resolved[key_set] = _find(operator, key_set)
    return kernel


def _find(operator: Operator, key_set: int) -> Boxed:
    if operator.op.updates:
        key_set &= ~keys.AUTOGRAD  # optimizer steps are never recorded
    present = [key for key in keys.FROM_THE_TOP if key_set & key]
    for key in present:
        if key > keys.AUTOGRAD and key in BOXED and (key not in _SELECTED or _SELECTED[key](operator, key_set)):
            return BOXED[key]
    if operator.composite is not None:
        return _run_update if operator.op.updates and operator.comes_to else _composite_kernel(operator)
    if OPERATORS[operator.op.base.name].composite is not None:
        return _run_composite_form
    return next((BOXED[key] for key in present if key in BOXED and key not in _SELECTED), run_backend)


def _composite_kernel(operator: Operator) -> Boxed:
    return _run_composite if operator.keyword_names else _run_positional_composite


COMPOSED: dict[int, Callable[[Operator, tuple[Any, ...], Any], None]] = {}
"""By key: what is told the arguments and the result of each composite on operands that have this key."""


def _run_positional_composite(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    if signature not in operator.checked:
        _check_once(operator, args, signature)
    result = operator.composite(*args)  # type: ignore[misc]
    if key_set & keys.AUTOGRAD:
        COMPOSED[keys.AUTOGRAD](operator, args, result)
    return result


def _specialize_composite(operator: Operator, key_set: int, signature: Signature) -> Run | None:
    """A composite alone, where its shape rule was run for the signature."""
    composite = operator.composite
    if composite is None or signature not in operator.checked:
        return None
    if not key_set & keys.AUTOGRAD:
        return lambda args: composite(*args)
    composed = COMPOSED[keys.AUTOGRAD]

    def run(args: tuple[Any, ...]) -> Any:
        result = composite(*args)
        composed(operator, args, result)
        return result

    return run


SPECIALIZERS[_run_positional_composite] = _specialize_composite


def _run_update(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    """Run a composite that updates leaves; where calls like this one came before, as the operation that it comes to.

    There are no lookups of such operations, and lists of parameters are long. Whoever watches sees both. Nothing is
    kept of calls from above, below which modes are others than those that hold.
    """
    ctx, key = context.current, (signature, key_set)
    kernel = _composite_kernel(operator)
    if ctx.trace is not None or ctx.profiler is not None:
        return kernel(operator, args, signature, key_set)
    run = operator.singles.get(key)
    if run is not None:
        return run(args)
    result = kernel(operator, args, signature, key_set)
    if signature_of(operator, args) == (key_set, signature):
        alone = partial(_run_again, kernel, operator, signature, key_set)
        remember(operator.singles, key, _single(operator, args, key_set) or alone)
    return result


def _run_again(kernel: Boxed, operator: Operator, signature: Signature, key_set: int, args: Arguments) -> Any:
    return kernel(operator, args, signature, key_set)


def _single(operator: Operator, args: tuple[Any, ...], key_set: int) -> Run | None:
    """The one operation that a composite comes to on operands like these, without the composite; None for others."""
    kernels = (_run_positional_composite, _run_composite, _run_update)
    if operator.comes_to is None or operator.resolved.get(key_set) not in kernels:
        return None
    records = bool(key_set & keys.AUTOGRAD)
    single = operator.comes_to(records, *metas_of(args))
    if single is None:
        return None
    inner, bind, place = single
    run = specialized(inner, *signature_of(inner, args if bind is None else bind(args)))
    if run is None or not (bind or place is not None or records):
        return run
    return _within(operator, run, bind, place, records)


def _within(
    operator: Operator,
    run: Run,
    bind: Callable[[Arguments], Arguments] | None,
    place: int | slice | None,
    records: bool,
) -> Run:
    if bind is None and place == 0 and not records:
        return lambda args: run(args)[0]

    def run_single(args: Arguments) -> Any:
        result = run(args if bind is None else bind(args))
        if place is not None:
            result = result[place]
        if records:
            COMPOSED[keys.AUTOGRAD](operator, args, result)
        return result

    return run_single


def _check_once(operator: Operator, args: tuple[Any, ...], signature: Signature) -> None:
    """Run a composite's shape rule, since it has no plan that would."""
    operator.op.infer(metas_of(args))
    remember(operator.checked, signature, None)


def _run_composite(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    if signature not in operator.checked:
        _check_once(operator, args, signature)
    positional = operator.op.positional
    keywords = dict(zip(operator.keyword_names, args[positional:], strict=True))
    result = operator.composite(*args[:positional], **keywords)  # type: ignore[misc]
    if key_set & keys.AUTOGRAD:
        COMPOSED[keys.AUTOGRAD](operator, args, result)
    return result


def _run_composite_form(operator: Operator, args: tuple[Any, ...], signature: Signature, key_set: int) -> Any:
    """The in-place or ``out=`` form of a composite: compute the result, then copy it into its target."""
    op = operator.op
    operator.op.infer(metas_of(args))
    result = dispatch(OPERATORS[op.base.name], args[: len(op.base.params)])
    results = result if result.__class__ is tuple else (result,)
    if op.form == "out" and any(r.autograd is not None and r.autograd.requires_grad for r in results):
        raise AutogradError(
            f"{op.public}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    targets = tuple([args[position] for position in op.mutates])
    for target, computed in zip(targets, results, strict=True):
        call(OPERATORS["copy_"], (target, computed), {})
    return targets if result.__class__ is tuple else targets[0]


def is_value(item: Any) -> bool:
    """Whether ``item`` is a tensor of the engine; contracts ask it."""
    return item.__class__ is Value


def call(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Bind Python arguments to the contract and dispatch, as formulas and composites do."""
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
