"""Calling an operation: bind, check by the contract's shape rule, submit one instruction, make the result tensors.

What the contract says about operands of given metas is worked out once and kept in a ``CallPlan``.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.autocast import Autocast, recast
from telegrad_protocol.errors import ArgumentTypeError, AutogradError, DeviceError, InplaceError
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import is_view

from . import _modes
from ._grad_names import grad_name
from ._modes import Modes, thread
from ._reach import Aliases, Leaf, Node
from ._session import Session
from ._tensor import Tensor

_SCALARS = frozenset((bool, int, float, complex))
_CAPACITY = 1 << 15
_PLANS: dict[tuple[Any, ...], CallPlan] = {}


class CallPlan:
    """One operation on operands of given metas and attributes."""

    __slots__ = (
        "device", "differentiable", "grad_name", "is_tuple", "is_view", "op", "outs", "positions", "result_type",
        "template", "view_of",
    )  # fmt: skip

    def __init__(self, op: Op, bound: tuple[Any, ...], device: Device, autocast: Autocast | None = None) -> None:
        given = tuple([_meta_of(b) for b in bound])
        called, metas = (op, given) if autocast is None else recast(op, given, autocast)
        inferred = called.infer(metas)
        for position in op.mutates:
            _check_target(op, metas[position])
        self.op = op
        self.outs: tuple[Meta, ...] | None
        self.outs = inferred if isinstance(inferred, tuple) else (inferred,) if inferred is not None else None
        self.is_tuple = isinstance(inferred, tuple)
        self.result_type = _result_type(op) if op.returns else tuple
        self.is_view = is_view(op, metas) and metas[op.view_of] is given[op.view_of]  # type: ignore[index]
        self.view_of = op.view_of
        self.differentiable = op.differentiable
        self.grad_name = grad_name(op, given) if op.differentiable else ""
        self.positions = tuple(p for p in op.tensor_positions if _holds_tensor(bound[p]))
        self.template = [None if p in self.positions else _encode(op, p, b) for p, b in enumerate(bound)]
        self.device = device


def _check_target(op: Op, target: Any) -> None:
    for meta in target if isinstance(target, tuple) else (target,):
        if meta is not None and overlaps_itself(meta.shape, meta.strides):
            raise InplaceError(
                f"{op.public}: several elements of the written {meta} share memory; clone() the tensor before you write"
            )


def _meta_of(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument._meta
    return tuple([_meta_of(a) for a in argument]) if isinstance(argument, tuple) else argument


def _holds_tensor(argument: Any) -> bool:
    return isinstance(argument, (Tensor, tuple))


def _encode(op: Op, position: int, argument: Any) -> Any:
    """An attribute as it travels; a number in a tensor's place becomes a list, so that it is no id."""
    kind = op.params[position].kind
    if argument is None:
        return None
    if kind.holds_tensors:
        return [argument.real, argument.imag] if isinstance(argument, complex) else [argument]
    return kind.encode(argument) if kind.encode else argument


_RESULT_TYPES: dict[str, Any] = {}


def _result_type(op: Op) -> Any:
    found = _RESULT_TYPES.get(op.name)
    if found is None:
        made = namedtuple(op.public, op.returns)  # type: ignore[misc]
        made.__repr__ = _show_results  # type: ignore[method-assign]
        found = _RESULT_TYPES[op.name] = made._make
    return found


def _show_results(results: Any) -> str:
    """As PyTorch prints them, type name included."""
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(results._fields, results, strict=True))
    return f"torch.return_types.{type(results).__name__}(\n{lines})"


def call(op: Op, bound: tuple[Any, ...]) -> Any:
    """Run a bound operation."""
    key: list[Any] = [op, dtypes._default]
    session: Session | None = None
    for argument in bound:
        if isinstance(argument, Tensor):
            key.append(argument._meta)
            if session is None:
                session = argument._session
            elif session is not argument._session:
                raise _foreign(op)
        elif argument is None:
            key.append(None)
        elif isinstance(argument, (tuple, list)):
            key.append(tuple(map(_described, argument)))
            session = _session_of(op, argument, session)
        else:
            key.append(argument)
            key.append(argument.__class__ if argument or argument.__class__ not in _SCALARS else repr(argument))
    if session is None:
        session = _modes.current_session()
        key.append(session.places)
    modes = thread.modes
    if modes.autocast is not None:
        key.append(modes.autocast)
    try:
        plan = _PLANS.get(tuple(key))
    except TypeError:
        plan = None
    if plan is None:
        bound = _normalize(op, bound, session)
        plan = _plan(op, bound, tuple(key), session, modes.autocast)
    return execute(plan, session, bound, modes)


def _described(item: Any) -> Any:
    """An element of a list as part of a key; as above, 1, 1.0 and True are different, and so are 0.0 and -0.0."""
    if isinstance(item, Tensor):
        return item._meta
    return item, item.__class__ if item or item.__class__ not in _SCALARS else repr(item)


def _session_of(op: Op, items: Any, session: Session | None) -> Session | None:
    for item in items:
        if isinstance(item, Tensor):
            if session is None:
                session = item._session
            elif session is not item._session:
                raise _foreign(op)
    return session


def _is_tensor(thing: Any) -> bool:
    return isinstance(thing, Tensor)


def _normalize(op: Op, bound: tuple[Any, ...], session: Session) -> tuple[Any, ...]:
    """Canonical arguments; the default device where a creation names none."""
    bound = op.normalize(bound, _is_tensor)
    if any(_holds_tensor(bound[p]) for p in op.tensor_positions):
        return bound
    return tuple(
        session.default_device if b is None and p.kind.name == "device?" else b
        for p, b in zip(op.params, bound, strict=True)
    )


def _plan(
    op: Op, bound: tuple[Any, ...], key: tuple[Any, ...], session: Session, autocast: Autocast | None
) -> CallPlan:
    for argument in bound:
        if isinstance(argument, Device) and argument not in session.devices:
            raise DeviceError(
                f"{op.public}: device {argument} is not there; the server has {', '.join(map(str, session.devices))}"
            )
    tensors = [t for b in bound for t in (b if isinstance(b, tuple) else (b,)) if isinstance(t, Tensor)]
    plan = CallPlan(op, bound, tensors[0]._meta.device if tensors else session.default_device, autocast)
    try:
        if len(_PLANS) >= _CAPACITY:
            _PLANS.clear()
        _PLANS[key] = plan
    except TypeError:  # an unhashable attribute: worked out again each time
        pass
    return plan


def _foreign(op: Op) -> DeviceError:
    return DeviceError(f"{op.public}: operands belong to different sessions; bring them to one with numpy()")


def execute(plan: CallPlan, session: Session, bound: tuple[Any, ...], modes: Modes) -> Any:
    """Submit the instruction and make the results."""
    op = plan.op
    records = modes.records
    wire = plan.template.copy()
    parents: list[Any] | None = None
    for position in plan.positions:
        argument = bound[position]
        if not isinstance(argument, Tensor):
            wire[position] = [None if t is None else t._id for t in argument]
            if records:
                parents = _collect(op, position, argument, parents)
            continue
        wire[position] = argument._id
        if argument._aliases is not None:
            argument._refresh()
        if argument._requires_grad and records:
            parents = _collect(op, position, (argument,), parents)
    if op.mutates:
        return _mutate(plan, session, bound, wire, parents, modes)
    outs = plan.outs
    if outs is None:
        return _unknown(plan, session, wire, parents, modes)
    node = Node(tuple(parents), plan.grad_name) if parents and plan.differentiable else None
    if not plan.is_tuple:
        id = session.new_id()
        result = _made(plan, session, bound, id, outs[0], node)
        session.call(op.index, session.sites.current(3), (id,), wire, modes)
        return result
    ids = tuple([session.new_id() for _ in outs])
    results = [_made(plan, session, bound, i, m, node) for i, m in zip(ids, outs, strict=True)]
    session.call(op.index, session.sites.current(3), ids, wire, modes)
    return plan.result_type(results)


def _collect(op: Op, position: int, tensors: Any, parents: list[Any] | None) -> list[Any] | None:
    """Add what the result will reach through these operands."""
    if position in op.no_grad:
        return parents
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            parents = parents if parents is not None else []
            parents.append(tensor._reach())
    return parents


def _made(plan: CallPlan, session: Session, bound: tuple[Any, ...], id: int, meta: Meta, node: Node | None) -> Tensor:
    result = Tensor(session, id, meta)
    if node is not None and meta.dtype.category >= 2:
        result._requires_grad = True
        result._node = node
    if plan.is_view and plan.op.public != "detach":
        source = bound[plan.view_of]  # type: ignore[index]
        root = source._base if source._base is not None else source
        if root._aliases is None:
            root._aliases = Aliases()
        result._base, result._aliases, result._seen = root, root._aliases, root._aliases.version
    return result


def _unknown(plan: CallPlan, session: Session, wire: list[Any], parents: list[Any] | None, modes: Modes) -> Any:
    """An operation whose result's shape depends on data: the one kind of call that waits."""
    ids = tuple([session.new_id() for _ in range(max(len(plan.op.returns), 1))])
    try:
        session.call(plan.op.index, session.sites.current(3), ids, wire, modes)
        described = session.describe(ids, plan.device)
    except BaseException:
        for id in ids:
            session.free(id)
        raise
    results = [Tensor(session, id, meta) for id, (meta, _) in zip(ids, described, strict=True)]
    for result, (_, requires_grad) in zip(results, described, strict=True):
        if requires_grad and parents:
            result._requires_grad, result._node = True, Node(tuple(parents), plan.grad_name)
    return plan.result_type(results) if plan.op.returns else results[0]


def _mutate(
    plan: CallPlan, session: Session, bound: tuple[Any, ...], wire: list[Any], parents: list[Any] | None, modes: Modes
) -> Any:
    op = plan.op
    targets = [bound[p] for p in op.mutates]
    if modes.records and not op.updates:
        for target in targets:
            for tensor in target if isinstance(target, (tuple, list)) else (target,):
                if tensor is not None:
                    _check_writable(op, tensor)
        if parents and op.form == "out":
            raise AutogradError(
                f"{op.public}: out= does not support differentiation, but an operand requires grad; use no_grad()"
            )
    session.call(op.index, session.sites.current(3), (), wire, modes)
    if parents and plan.differentiable and isinstance(targets[0], Tensor):
        _rebase(targets[0], Node(tuple(parents), plan.grad_name))
    if plan.outs is None:
        return None
    return targets[0] if not plan.is_tuple else plan.result_type(targets)


def _check_writable(op: Op, tensor: Tensor) -> None:
    for candidate, what in ((tensor, "a leaf tensor"), (tensor._base, "a view of a leaf tensor")):
        if candidate is not None and candidate.requires_grad and isinstance(candidate._reach(), Leaf):
            raise InplaceError(
                f"{op.public}: {what} that requires grad is modified in place; use no_grad() or detach() it first"
            )


def _rebase(target: Tensor, node: Node) -> None:
    """Make ``node`` what gradients of ``target``, and of everything that shares its memory, reach."""
    root = target._base
    if root is not None:
        if root.requires_grad:
            node.parents += (root._reach(),)
        root._requires_grad, root._node = True, Node((node,), "CopySlices")
        node = Node((root._node,), "AsStridedBackward0")
    target._requires_grad, target._node = True, node
    aliases = target._aliases
    if aliases is None:
        return
    aliases.version += 1
    target._seen = aliases.version
    if root is None:
        aliases.node = Node((node,), "AsStridedBackward0")
    else:
        aliases.node, root._seen = node, aliases.version


def bind_and_call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on Python arguments."""
    return call(op, op.bind(args, kwargs))


__all__ = ["ArgumentTypeError", "bind_and_call", "call", "execute"]
