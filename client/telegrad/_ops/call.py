"""Calling an operation: bind, check by the contract's shape rule, submit one instruction, make the result tensors.

What the contract says about operands of given metas is kept in a ``CallPlan``, by how the call is written (``_forms``)
and what it is given. Here loops are quicker than ``map``.
"""

from __future__ import annotations

from typing import Any

from telegrad import return_types
from telegrad._session import modes as _modes
from telegrad._session.modes import Modes, thread
from telegrad._session.session import Session
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.autocast import Autocast, recast
from telegrad_protocol.errors import AutogradError, DeviceError, InplaceError
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.messages import Call
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import is_view

from .call_forms import Form
from .grad_names import grad_name
from .reachability import Aliases, Leaf, Node, Reach

_SCALARS = frozenset((bool, int, float, complex))
_CAPACITY = 1 << 15
_PLANS: dict[tuple[Any, ...], CallPlan] = {}
_REMEMBERED = 64
_TENSOR_TYPES: set[Any] = {Tensor}
"""``Tensor`` and classes made of it, as they are met in lists."""


class CallPlan:
    """One operation on operands of given metas and attributes."""

    __slots__ = (
        "device", "differentiable", "gives_gradient", "grad_name", "is_tuple", "is_view", "meta", "op", "outs",
        "rest", "result_type", "template", "view_of",
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
        self.result_type = return_types.TYPES[op.public]._make if op.returns else tuple
        self.is_view = is_view(op, metas) and metas[op.view_of] is given[op.view_of]  # type: ignore[index]
        self.view_of = op.view_of
        self.differentiable = op.differentiable
        self.grad_name = grad_name(op, given) if op.differentiable else ""
        is_simple = self.outs is not None and not (self.is_tuple or self.is_view or op.mutates)
        self.meta: Meta | None = inferred if is_simple else None  # type: ignore[assignment]
        """Of the result, where it is one and new."""
        self.gives_gradient = self.meta is not None and op.differentiable and self.meta.dtype.category >= 2
        tensors = [p for p in op.tensor_positions if _holds_tensor(bound[p])]
        self.rest: list[Any] = []
        """What follows the operands, where these come first."""
        self.template = [None if p in tensors else _encode(op, p, b) for p, b in enumerate(bound)]
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


def call(form: Form, values: tuple[Any, ...]) -> Any:
    """Run an operation; who calls this was called by the user's program, or by telegrad's."""
    modes = thread.modes
    records = modes.records
    key: list[Any] = [form, dtypes._default, modes.autocast]
    wire: list[Any] = []
    parents: list[Reach] = []
    session: Session | None = None
    for tensor in values if form.is_plain else form.tensors(values):
        if tensor._session is not session:
            if session is not None:
                raise _foreign(form.op)
            session = tensor._session
        key.append(tensor._meta)
        wire.append(tensor._id)
        if tensor._aliases is not None:
            tensor._refresh()
        if tensor._requires_grad and records:
            parents.append(tensor._node or tensor._reach())
    if not form.is_plain or session is None:
        session = _describe(form, values, key, session)
    try:
        plan = _PLANS.get(tuple(key))
    except TypeError:
        plan = None
    if plan is None:
        plan = _plan(form, _normalize(form.op, form.bind(values), session), tuple(key), session, modes.autocast)
    if form.is_leading:
        wire += plan.rest
    else:
        wire = _placed(form, plan, wire)
    if form.hides and parents:
        parents = [tensor._reach() for tensor in form.shown(values) if tensor._requires_grad]
    if form.lists:
        _place_lists(form, values, wire, parents, records)
    if plan.meta is None:
        return _finish(form, plan, session, values, wire, parents, modes)
    id = session.new_id()
    result = Tensor(session, id, plan.meta)
    if parents and plan.gives_gradient:
        result._requires_grad = True
        result._node = Node(tuple(parents), plan.grad_name)
    freed = session.take_dead() if session._dead else ()
    session.queue(Call(form.op.index, session.sites.current(2), (id,), wire, freed), modes)
    return result


def _finish(
    form: Form, plan: CallPlan, session: Session, values: tuple[Any, ...], wire: list[Any], parents: list[Reach],
    modes: Modes,
) -> Any:  # fmt: skip
    """The end of a call that gives several results or none, a view, or what only the data tell."""
    if plan.op.mutates:
        return _mutate(form, plan, session, values, wire, parents, modes)
    if plan.outs is None:
        return _unknown(plan, session, wire, parents, modes)
    node = Node(tuple(parents), plan.grad_name) if parents and plan.differentiable else None
    made = [_made(form, plan, session, values, meta, node) for meta in plan.outs]
    session.call(plan.op.index, session.sites.current(3), tuple([each._id for each in made]), wire, modes)
    return plan.result_type(made) if plan.is_tuple else made[0]


def _describe(form: Form, values: tuple[Any, ...], key: list[Any], session: Session | None) -> Session:
    """Add to a key what is not a tensor's meta; and the session, which also lists of tensors can tell."""
    if form.attributes is not None:
        key.append(form.attributes(values))
    if form.floats is not None:
        key.append(tuple([value or repr(value) for value in form.floats(values)]))  # 0.0 and -0.0 differ
    for index, _ in form.lists:
        metas: Any = []
        for tensor in values[index]:
            if tensor.__class__ not in _TENSOR_TYPES:
                metas = map(_described, values[index])
                session = _session_of(form.op, values[index], session)
                break
            if tensor._session is not session:
                if session is not None:
                    raise _foreign(form.op)
                session = tensor._session
            metas.append(tensor._meta)
        key.append(tuple(metas))
    if session is None:
        session = _modes.current_session()
        key.append(session.places)
    return session


def _placed(form: Form, plan: CallPlan, ids: list[int]) -> list[Any]:
    """The arguments as they travel, where the tensors are not the first of them."""
    wire = plan.template.copy()
    for position, id in zip(form.positions, ids, strict=True):
        wire[position] = id
    return wire


def _place_lists(form: Form, values: tuple[Any, ...], wire: list[Any], parents: list[Reach], records: bool) -> None:
    op = form.op
    for index, position in form.lists:
        if position not in op.tensor_positions:
            continue
        items = values[index]
        wire[position] = [None if t is None else t._id for t in items]
        if records and position not in op.no_grad:
            parents.extend([t._reach() for t in items if t is not None and t.requires_grad])


def _described(item: Any) -> Any:
    """An element of a list as part of a key; as above, 1, 1.0 and True are different, and so are 0.0 and -0.0."""
    if isinstance(item, Tensor):
        return item._meta
    return item, item.__class__ if item or item.__class__ not in _SCALARS else repr(item)


def _session_of(op: Op, items: Any, session: Session | None) -> Session | None:
    for item in items:
        if isinstance(item, Tensor):
            if len(_TENSOR_TYPES) < _REMEMBERED:
                _TENSOR_TYPES.add(item.__class__)
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
    form: Form, bound: tuple[Any, ...], key: tuple[Any, ...], session: Session, autocast: Autocast | None
) -> CallPlan:
    op = form.op
    for argument in bound:
        if isinstance(argument, Device) and argument not in session.devices:
            raise DeviceError(
                f"{op.public}: device {argument} is not there; the server has {', '.join(map(str, session.devices))}"
            )
    tensors = [t for b in bound for t in (b if isinstance(b, tuple) else (b,)) if isinstance(t, Tensor)]
    plan = CallPlan(op, bound, tensors[0]._meta.device if tensors else session.default_device, autocast)
    plan.rest = plan.template[len(form.positions) :]
    try:
        if len(_PLANS) >= _CAPACITY:
            _PLANS.clear()
        _PLANS[key] = plan
    except TypeError:  # an unhashable attribute: worked out again each time
        pass
    return plan


def _foreign(op: Op) -> DeviceError:
    return DeviceError(f"{op.public}: operands belong to different sessions; bring them to one with numpy()")


def _made(
    form: Form, plan: CallPlan, session: Session, values: tuple[Any, ...], meta: Meta, node: Node | None
) -> Tensor:
    """A result that is one of several, or a view."""
    result = Tensor(session, session.new_id(), meta)
    if node is not None and meta.dtype.category >= 2:
        result._requires_grad = True
        result._node = node
    if plan.is_view and plan.op.public != "detach":
        source = values[form.sources[plan.view_of]]  # type: ignore[index]
        root = source._base if source._base is not None else source
        if root._aliases is None:
            root._aliases = Aliases()
        result._base, result._aliases, result._seen = root, root._aliases, root._aliases.version
    return result


def _unknown(plan: CallPlan, session: Session, wire: list[Any], parents: list[Reach], modes: Modes) -> Any:
    """An operation whose result's shape depends on data: the one kind of call that waits."""
    ids = tuple([session.new_id() for _ in range(max(len(plan.op.returns), 1))])
    try:
        session.call(plan.op.index, session.sites.current(4), ids, wire, modes)
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
    form: Form, plan: CallPlan, session: Session, values: tuple[Any, ...], wire: list[Any], parents: list[Reach],
    modes: Modes,
) -> Any:  # fmt: skip
    op = plan.op
    targets = [None if form.sources[p] is None else values[form.sources[p]] for p in op.mutates]  # type: ignore[index]
    if modes.records and not op.updates:
        for target in targets:
            for tensor in target if isinstance(target, (tuple, list)) else (target,):
                if tensor is not None:
                    _check_writable(op, tensor)
        if parents and op.form == "out":
            raise AutogradError(
                f"{op.public}: out= does not support differentiation, but an operand requires grad; use no_grad()"
            )
    session.call(op.index, session.sites.current(4), (), wire, modes)
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


__all__ = ["Form", "call"]
