"""Calling an operation: bind, check by the contract's shape rule, submit one instruction, make the result tensors.

What the contract says about a call is cached as a ``CallPlan``. The key is the call's pattern (``call_pattern``), the
metas of its operands, its attributes, the default dtype, autocast and the thread's devices. ``call`` is on the path of
every operation: loops stand there where ``map`` or a helper would read better, because they are quicker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from telegrad import return_types
from telegrad._session.devices import default_device, require_device, session_for
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._session.thread_modes import Modes, thread
from telegrad._tensor.autograd_graph import Aliases, GradientEdge, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.autocast import Autocast, recast
from telegrad_protocol.errors import AutogradError, DeviceError
from telegrad_protocol.messages import Call
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import device_of, is_view

from . import call_pattern as _call_pattern
from .call_pattern import CallPattern
from .duals import DualTensor, duals
from .grad_names import grad_name
from .operand_classes import DISPATCHING, OVERRIDING, OperandHasHandler, is_handled
from .outputs import check_target, check_writable
from .sharing import keep_saved, sharing

_SCALARS = frozenset((bool, int, float, complex))
_MAX_PLANS = 1 << 15
"""The cache of plans is emptied at this size, so that a program whose shapes keep changing does not grow for ever."""
_PLANS: dict[tuple[Any, ...], CallPlan] = {}
_MAX_TENSOR_TYPES = 64
_TENSOR_TYPES: set[Any] = {Tensor}
"""``Tensor`` and up to ``_MAX_TENSOR_TYPES`` subclasses that were seen in lists: a quick test for ``isinstance``."""


class CallPlan:
    """What a call gives and how it travels, for one operation on operands of given metas and attributes.

    ``meta`` is that of the result, where there is exactly one result and it is a new tensor; ``outs`` are the metas of
    all results, None where only the data tell their shapes. ``rest`` is what follows the operands on the wire where
    these come first; ``template`` are all arguments on the wire, with None in the places of operands.
    """

    __slots__ = (
        "constants", "device", "differentiable", "gives_gradient", "grad_name", "is_tuple", "is_view", "meta", "op",
        "outs", "rest", "result_type", "template", "view_of",
    )  # fmt: skip

    def __init__(self, op: Op, bound: tuple[Any, ...], device: Device, autocast: Autocast | None = None) -> None:
        given = tuple([_meta_of(argument) for argument in bound])
        called, metas = (op, given) if autocast is None else recast(op, given, autocast)
        inferred = called.infer(metas)
        for position in op.mutates:
            check_target(op, metas[position])
        self.op = op
        self.outs: tuple[Meta, ...] | None
        self.outs = inferred if isinstance(inferred, tuple) else (inferred,) if inferred is not None else None
        self.is_tuple = isinstance(inferred, tuple)
        self.result_type = return_types.TYPES[op.public]._make if op.returns else tuple
        self.is_view = is_view(op, metas) and metas[op.view_of] is given[op.view_of]  # type: ignore[index]
        self.view_of = op.view_of
        self.differentiable = op.differentiable
        self.constants = op.constants
        self.grad_name = grad_name(op, given) if op.differentiable else ""
        is_simple = self.outs is not None and not (self.is_tuple or self.is_view or op.mutates)
        self.meta: Meta | None = inferred if is_simple else None  # type: ignore[assignment]
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


def call(pattern: CallPattern, values: tuple[Any, ...], depth: int = 2) -> Any:
    """Run an operation on the values of a call of this pattern, and return its results.

    The line that the server is told is that of the innermost caller outside of telegrad: ``sites.current`` is given how
    many frames are known to be telegrad's, which are ``depth`` from here on.
    """
    modes = thread.modes
    records = modes.records
    key: list[Any] = [pattern, dtypes._default, modes.of_plans]
    wire: list[Any] = []
    parents: list[GradientEdge] = []
    session: ClientSession | None = None
    for tensor in values if pattern.is_plain else pattern.tensors(values):
        if tensor._session is not session:
            if session is not None:
                raise _several_sessions(pattern.op, session, tensor._session)
            session = tensor._session
        key.append(tensor._meta)
        wire.append(tensor._id)
        if tensor._aliases is not None and tensor._refresh():
            raise OperandHasHandler(f"{pattern.op.public}: a view has become a dual number")
        if tensor._requires_grad and records:
            parents.append(tensor._node or tensor._gradient_edge())
    if not pattern.is_plain or session is None:
        session = _complete_key(pattern, values, key, session)
    try:
        plan = _PLANS.get(tuple(key))
    except TypeError:
        plan = None
    if plan is None:
        plan = _plan(
            pattern, _normalize(pattern.op, pattern.bind(values), session), tuple(key), session, modes.autocast
        )
    if pattern.is_leading:
        wire += plan.rest
    else:
        wire = _wire_arguments(pattern, plan, wire)
    if pattern.has_no_grad and parents:
        parents = [tensor._gradient_edge() for tensor in pattern.differentiable(values) if tensor._requires_grad]
    if pattern.lists:
        _place_lists(pattern, values, wire, parents, records)
    if plan.meta is None:
        return _finish(pattern, plan, session, values, wire, parents, modes, depth + 1)
    id = session.new_id()
    result = Tensor(session, id, plan.meta)
    if parents and plan.gives_gradient:
        result._requires_grad = True
        result._node = OperationNode(tuple(parents), plan.grad_name)
    elif not records and modes.inference:
        result._is_inference = True
    freed = session.take_dead() if session._dead else ()
    session.queue(Call(pattern.op.index, session.sites.current(depth), (id,), wire, freed), modes)
    return result


def _finish(
    pattern: CallPattern, plan: CallPlan, session: ClientSession, values: tuple[Any, ...], wire: list[Any],
    parents: list[GradientEdge], modes: Modes, depth: int,
) -> Any:  # fmt: skip
    """Finish a call that has several results or none, a view as its result, or a result whose shape the data tell."""
    if plan.op.mutates:
        return _mutate(pattern, plan, session, values, wire, parents, modes, depth + 1)
    if plan.outs is None:
        return _wait_for_shapes(plan, session, wire, parents, modes, depth + 1)
    node = OperationNode(tuple(parents), plan.grad_name) if parents and plan.differentiable else None
    results = [_result(pattern, plan, session, values, meta, node) for meta in plan.outs]
    if modes.inference and not plan.is_view:
        for result in results:
            result._is_inference = True
    if node is not None:
        for number in plan.constants:
            results[number]._requires_grad, results[number]._node = False, None
    session.call(plan.op.index, session.sites.current(depth), tuple([result._id for result in results]), wire, modes)
    return plan.result_type(results) if plan.is_tuple else results[0]


def _complete_key(
    pattern: CallPattern, values: tuple[Any, ...], key: list[Any], session: ClientSession | None
) -> ClientSession:
    """Add to the key of a plan what is not the meta of an operand; return the session."""
    if pattern.attributes is not None:
        key.append(pattern.attributes(values))
    if pattern.floats is not None:
        key.append(
            tuple([value or repr(value) for value in pattern.floats(values)])
        )  # as keys, 0.0 and -0.0 are the same, and as operands they are not
    for index, _ in pattern.lists:
        metas: Any = []
        for tensor in values[index]:
            if tensor.__class__ not in _TENSOR_TYPES:
                metas = map(_key_of, values[index])
                session = _session_of(pattern.op, values[index], session)
                break
            if tensor._session is not session:
                if session is not None:
                    raise _several_sessions(pattern.op, session, tensor._session)
                session = tensor._session
            metas.append(tensor._meta)
        key.append(tuple(metas))
    if session is None:
        named = pattern.device_source
        session = session_for(None if named is None else values[named])
        key.append(session.places)
    return session


def _wire_arguments(pattern: CallPattern, plan: CallPlan, ids: list[int]) -> list[Any]:
    """Return the arguments as they travel, for a call whose tensors are not the first of them."""
    wire = plan.template.copy()
    for position, id in zip(pattern.positions, ids, strict=True):
        wire[position] = id
    return wire


def _place_lists(
    pattern: CallPattern, values: tuple[Any, ...], wire: list[Any], parents: list[GradientEdge], records: bool
) -> None:
    op = pattern.op
    for index, position in pattern.lists:
        if position not in op.tensor_positions:
            continue
        items = values[index]
        wire[position] = [None if t is None else t._id for t in items]
        if records and position not in op.no_grad:
            parents.extend([t._gradient_edge() for t in items if t is not None and t._is_tracked()])


def _key_of(item: Any) -> Any:
    """Return an element of a list as part of a key, so that 1, 1.0 and True are different, and so are 0.0 and -0.0."""
    if isinstance(item, Tensor):
        return item._meta
    return item, item.__class__ if item.__class__ not in _SCALARS or item else repr(item)


def _session_of(op: Op, items: Any, session: ClientSession | None) -> ClientSession | None:
    for item in items:
        if isinstance(item, Tensor):
            kind = item.__class__
            if is_handled(kind) or (item.__class__ is DualTensor and duals.intercepts):
                raise OperandHasHandler(f"{op.public}: a list holds a {item.__class__.__name__}")
            is_asked = kind is DualTensor or kind in OVERRIDING or kind in DISPATCHING
            if not is_asked and len(_TENSOR_TYPES) < _MAX_TENSOR_TYPES:
                _TENSOR_TYPES.add(item.__class__)
            if session is None:
                session = item._session
            elif session is not item._session:
                raise _several_sessions(op, session, item._session)
    return session


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


def _plan(
    pattern: CallPattern,
    bound: tuple[Any, ...],
    key: tuple[Any, ...],
    session: ClientSession,
    autocast: Autocast | None,
) -> CallPlan:
    tensors = [t for b in bound for t in (b if isinstance(b, tuple) else (b,)) if isinstance(t, Tensor)]
    device = device_of([tensor._meta for tensor in tensors]) if tensors else default_device(session)
    plan = CallPlan(pattern.op, bound, device, autocast)
    plan.rest = plan.template[len(pattern.positions) :]
    try:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        _PLANS[key] = plan
    except TypeError:  # an attribute cannot be hashed: such a call is planned anew every time
        pass
    return plan


def _several_sessions(op: Op, *sessions: ClientSession) -> Exception:
    if any([isinstance(session, ShapeSession) for session in sessions]):
        return OperandHasHandler(f"{op.public}: some operands have no elements")
    for session in sessions:
        session._require_open()  # that one of them is lost or ended is the better explanation
    return DeviceError(f"{op.public}: operands belong to different sessions; bring them to one with numpy()")


def _result(
    pattern: CallPattern,
    plan: CallPlan,
    session: ClientSession,
    values: tuple[Any, ...],
    meta: Meta,
    node: OperationNode | None,
) -> Tensor:
    """Return the handle of a result that is one of several, or a view."""
    result = Tensor(session, session.new_id(), meta)
    if node is not None and meta.dtype.category >= 2:
        result._requires_grad = True
        result._node = node
    if plan.is_view:
        source = values[pattern.sources[plan.view_of]]  # type: ignore[index]
        if source._is_inference:
            result._is_inference = True
        if plan.op.public not in ("detach", "_unversioned"):  # views that autograd does not know
            root = source._base if source._base is not None else source
            if root._aliases is None:
                root._aliases = Aliases()
            result._base, result._aliases, result._seen = root, root._aliases, root._aliases.version
        elif sharing.detached is not None:
            sharing.detached[id(result)] = result, source
    return result


def _wait_for_shapes(
    plan: CallPlan, session: ClientSession, wire: list[Any], parents: list[GradientEdge], modes: Modes, depth: int
) -> Any:
    """Run an operation whose result's shape depends on data: the one kind of call that waits for the server."""
    ids = tuple([session.new_id() for _ in range(max(len(plan.op.returns), 1))])
    try:
        session.call(plan.op.index, session.sites.current(depth), ids, wire, modes)
        described = session.describe(ids, (plan.device,) * len(ids))
    except BaseException:
        for id in ids:
            session.free(id)
        raise
    results = [Tensor(session, id, meta) for id, (meta, _) in zip(ids, described, strict=True)]
    for result, (_, requires_grad) in zip(results, described, strict=True):
        if requires_grad and parents:
            result._requires_grad, result._node = True, OperationNode(tuple(parents), plan.grad_name)
    return plan.result_type(results) if plan.op.returns else results[0]


def _mutate(
    pattern: CallPattern, plan: CallPlan, session: ClientSession, values: tuple[Any, ...], wire: list[Any],
    parents: list[GradientEdge], modes: Modes, depth: int,
) -> Any:  # fmt: skip
    op = plan.op
    targets = [None if pattern.sources[p] is None else values[pattern.sources[p]] for p in op.mutates]  # type: ignore[index]
    if modes.records and not op.updates:
        for target in targets:
            for tensor in target if isinstance(target, (tuple, list)) else (target,):
                if tensor is not None:
                    check_writable(op, tensor)
        if parents and op.form == "out":
            raise AutogradError(
                f"{op.public}: out= does not support differentiation, but an operand requires grad; use no_grad()"
            )
    if sharing.keeps_saved:
        keep_saved(session, targets)
    session.call(op.index, session.sites.current(depth), (), wire, modes)
    if parents and plan.differentiable and isinstance(targets[0], Tensor):
        _rebase(targets[0], OperationNode(tuple(parents), plan.grad_name))
    return None if plan.outs is None else plan.result_type(targets) if plan.is_tuple else targets[0]


def _rebase(target: Tensor, node: OperationNode) -> None:
    """Let gradients of ``target``, and of everything that shares its memory, flow to ``node``, which wrote into it."""
    root = target._base
    if root is not None:
        if root._is_tracked():
            node.parents += (root._gradient_edge(),)
        root._requires_grad, root._node = True, OperationNode((node,), "torch::autograd::CopySlices")
        node = OperationNode((root._node,), "AsStridedBackward0")
    target._requires_grad, target._node = True, node
    aliases = target._aliases
    if aliases is None:
        return
    aliases.version += 1
    target._seen = aliases.version
    if root is None:
        aliases.node = OperationNode((node,), "AsStridedBackward0")
    else:
        aliases.node, root._seen = node, aliases.version


class CacheInfo(NamedTuple):
    """How many call plans and call patterns are cached."""

    plans: int
    patterns: int


def cache_info() -> CacheInfo:
    """Return the sizes of the caches that calls are looked up in."""
    return CacheInfo(len(_PLANS), _call_pattern.count())
