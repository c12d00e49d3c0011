"""Plans of calls: what the contract says about an operation on operands of given metas and attributes.

The shape rule runs where a plan is made: that is where wrong shapes, dtypes and devices are found.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from telegrad import return_types
from telegrad._session.devices import default_device, require_device
from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.autocast import Autocast, recast
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import device_of, is_view

from . import call_pattern as _call_pattern
from .call_pattern import CallPattern
from .grad_names import grad_name
from .late_errors import late_error
from .outputs import check_target
from .warned_calls import warn_of

_MAX_PLANS = 1 << 15
"""The cache of plans is emptied at this size, so that a program whose shapes keep changing does not grow for ever."""
PLANS: Final[dict[tuple[Any, ...], CallPlan]] = {}


class CallPlan:
    """What a call gives and how it travels, for one operation on operands of given metas and attributes.

    ``meta`` is that of the result, where there is exactly one result and it is a new handle; ``outs`` are the metas of
    all results, None where only the data tell their shapes. ``rest`` is what follows the operands on the wire where
    these come first; ``template`` are all arguments on the wire, with None in the places of operands. ``is_known_view``
    tells that autograd knows the results as views. ``index`` is the operation's number. ``late_error`` says how the
    call is awaited where the program would catch an error that only the server finds. ``keeps_apart`` tells that the
    operands of an operation in place may not share a part of the target's memory. ``target`` is the position of the
    operand that is written into and returned, where that is all that the operation does.
    """

    __slots__ = (
        "constants", "device", "differentiable", "gives_gradient", "grad_name", "index", "is_known_view", "is_tuple",
        "is_view", "keeps_apart", "late_error", "meta", "op", "outs", "rest", "result_type", "target", "template",
        "view_of",
    )  # fmt: skip

    def __init__(self, op: Op, bound: tuple[Any, ...], device: Device, autocast: Autocast | None = None) -> None:
        given = tuple([_meta_of(argument) for argument in bound])
        called, metas = (op, given) if autocast is None else recast(op, given, autocast)
        inferred = called.infer(metas)
        warn_of(called, metas, inferred)
        for position in op.mutates:
            check_target(op, metas[position])
        self.op = op
        self.keeps_apart = op.name == "copy_" or (op.form == "inplace" and bool(op.promotion))
        self.index = op.index
        self.outs: tuple[Meta, ...] | None
        self.outs = inferred if isinstance(inferred, tuple) else (inferred,) if inferred is not None else None
        self.is_tuple = isinstance(inferred, tuple)
        named = return_types.TYPES.get(op.public) if op.returns else None
        self.result_type = tuple if named is None else named._make
        self.is_view = is_view(op, metas) and metas[op.view_of] is given[op.view_of]  # type: ignore[index]
        self.is_known_view = self.is_view and op.public not in ("detach", "_unversioned")
        self.view_of = op.view_of
        self.differentiable = op.differentiable
        self.constants = op.constants
        self.grad_name = grad_name(op, given) if op.differentiable else ""
        self.late_error = late_error(op, self.outs, device)
        is_simple = self.outs is not None and not (self.is_tuple or self.late_error)
        self.meta: Meta | None = inferred if is_simple and not op.mutates else None  # type: ignore[assignment]
        self.target = op.mutates[0] if is_simple and len(op.mutates) == 1 and not op.updates else None
        self.gives_gradient = self.meta is not None and op.differentiable and self.meta.dtype.category >= 2
        tensors = [p for p in op.tensor_positions if _holds_tensor(bound[p])]
        self.rest: list[Any] = []
        self.template = [None if p in tensors else _encode(op, p, argument) for p, argument in enumerate(bound)]
        self.device = device


def _meta_of(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument._meta
    return tuple([_meta_of(element) for element in argument]) if isinstance(argument, tuple) else argument


def _holds_tensor(argument: Any) -> bool:
    return isinstance(argument, (Tensor, tuple))


def _encode(op: Op, position: int, argument: Any) -> Any:
    """Return an attribute as it travels; a number in a tensor's place becomes a list: an integer is an id."""
    kind = op.params[position].kind
    if argument is None:
        return None
    if kind.holds_tensors:
        return [argument.real, argument.imag] if isinstance(argument, complex) else [argument]
    return kind.encode(argument) if kind.encode else argument


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Tensor)


def _normalize(op: Op, bound: tuple[Any, ...], session: ClientSession) -> tuple[Any, ...]:
    """Return arguments in canonical form; a call that makes a tensor and names no device gets the default one.

    Devices are checked: the server has them.
    """
    bound = op.normalize(bound, _is_tensor)
    has_tensors = any(_holds_tensor(bound[position]) for position in op.tensor_positions)
    completed = []
    for param, argument in zip(op.params, bound, strict=True):
        if isinstance(argument, Device):
            argument = require_device(argument, session, op.public)
        elif argument is None and not has_tensors and param.kind.name == "device?":
            argument = default_device(session)
        completed.append(argument)
    return tuple(completed)


def _named_device(bound: tuple[Any, ...], session: ClientSession) -> Device:
    """Return the device that a call without tensors names, or else the thread's default one."""
    named = next((argument for argument in bound if isinstance(argument, Device)), None)
    return default_device(session) if named is None else named


def plan_for(
    pattern: CallPattern, values: tuple[Any, ...], key: tuple[Any, ...], session: ClientSession,
    autocast: Autocast | None,
) -> CallPlan:  # fmt: skip
    """Make the plan of a call, and keep it by this key."""
    modes = key[2]
    bound = _normalize(pattern.op, pattern.bind(values), session)
    tensors = [t for b in bound for t in (b if isinstance(b, tuple) else (b,)) if isinstance(t, Tensor)]
    device = device_of([tensor._meta for tensor in tensors]) if tensors else _named_device(bound, session)
    plan = CallPlan(pattern.op, bound, device, autocast)
    if modes.packs:
        plan.meta = None  # such a call is finished where what it has saved is packed
    plan.rest = plan.template[len(pattern.positions) :]
    try:
        if len(PLANS) >= _MAX_PLANS:
            PLANS.clear()
        PLANS[key] = plan
    except TypeError:  # an attribute cannot be hashed: such a call is planned anew every time
        pass
    return plan


class CacheInfo(NamedTuple):
    """How many call plans and call patterns are cached."""

    plans: int
    patterns: int


def cache_info() -> CacheInfo:
    """Return the sizes of the caches that calls are looked up in."""
    return CacheInfo(len(PLANS), _call_pattern.count())
