"""Calling an operation: bind, check by the contract's shape rule, submit one instruction, make the result tensors.

What the contract says about a call is cached as a ``CallPlan``. The key is the call's pattern (``call_pattern``), the
metas of its operands, its attributes, the default dtype, autocast and the thread's devices. ``call`` is on the path of
every operation: loops stand there where ``map`` or a helper would read better, because they are quicker; and functions
that are attributes of objects are named before they are called, since Python 3.11 looks them up twice as fast so.
"""

from __future__ import annotations

from typing import Any

from telegrad._session.catching.prompt_errors import wait_where_caught
from telegrad._session.devices import session_for
from telegrad._session.grad_mode import no_grad
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._session.thread_modes import Modes, thread
from telegrad._tensor.autograd_graph import Aliases, GradientEdge, new_node
from telegrad._tensor.tensor import Tensor, new_tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import DeviceError
from telegrad_protocol.messages import Call
from telegrad_protocol.ops import Op

from .call_pattern import CallPattern
from .call_plan import PLANS, CallPlan, plan_for
from .duals import DualTensor, duals
from .mutation import mutate
from .operand_classes import DISPATCHING, OVERRIDING, OperandHasHandler, is_handled
from .operands import inference_tensors
from .packing import pack_saved
from .sharing import sharing

_plan_of = PLANS.get
_SCALARS = frozenset((bool, int, float, complex))
_BECOMES_DUAL = "a view has become a dual number"
_MAX_TENSOR_TYPES = 64
_TENSOR_TYPES: set[Any] = {Tensor}
"""``Tensor`` and up to ``_MAX_TENSOR_TYPES`` subclasses that were seen in lists: a quick test for ``isinstance``."""


def call(pattern: CallPattern, values: tuple[Any, ...]) -> Any:
    """Run an operation on the values of a call of this pattern, and return its results.

    The line that the server is told is that of the innermost caller outside of telegrad: ``sites.current`` is given how
    many frames from here on are known to be telegrad's.
    """
    modes = thread.modes
    records = modes.records
    is_plain = pattern.is_plain
    key: list[Any]
    session: ClientSession | None
    parents: list[GradientEdge] = []
    if pattern.is_single:  # most calls are: the other branch does the same for any number of operands
        tensor = values[0]
        session, aliases = tensor._session, tensor._aliases
        key = [pattern, dtypes._default, modes.of_plans, tensor._meta]
        wire: list[Any] = [tensor._id]
        if aliases is not None and aliases.version != tensor._seen and tensor._refresh():
            raise OperandHasHandler(f"{pattern.op.public}: {_BECOMES_DUAL}")
        if records and tensor._requires_grad:
            parents.append(tensor._node or tensor._gradient_edge())
    else:
        session, wire, key = None, [], [pattern, dtypes._default, modes.of_plans]
        if is_plain:
            tensors = values
        else:
            pick = pattern.tensors
            tensors = pick(values)
        for tensor in tensors:
            if type(tensor) is Tensor:
                its_session, aliases = tensor._session, tensor._aliases
                key.append(tensor._meta)
                wire.append(tensor._id)
            else:  # a parameter, most often: Python is slow where one instruction reads attributes of several classes
                its_session, aliases = tensor._session, tensor._aliases
                key.append(tensor._meta)
                wire.append(tensor._id)
            if its_session is not session:
                if session is not None:
                    raise _several_sessions(pattern.op, session, its_session)
                session = its_session
            if aliases is not None and aliases.version != tensor._seen and tensor._refresh():
                raise OperandHasHandler(f"{pattern.op.public}: {_BECOMES_DUAL}")
            if records and tensor._requires_grad:
                parents.append(tensor._node or tensor._gradient_edge())
    if not is_plain:
        pick_others = pattern.attributes
        if pick_others is not None:
            key.append(pick_others(values))
        for index in pattern.floats:
            value = values[index]
            key.append(value or repr(value))  # as keys, 0.0 and -0.0 are the same, and as operands they are not
        if pattern.lists:
            session = _add_lists(pattern, values, key, session)
    if session is None:
        named = pattern.device_source
        session = session_for(None if named is None else values[named])
        key.append(session.places)
    try:
        plan = _plan_of(tuple(key))
    except TypeError:
        plan = None
    if plan is None:
        plan = plan_for(pattern, values, tuple(key), session, modes.autocast)
    if pattern.is_leading:
        wire += plan.rest
    else:
        wire = _wire_arguments(pattern, plan, wire)
    if parents and pattern.has_no_grad:
        parents = [tensor._gradient_edge() for tensor in pattern.differentiable(values) if tensor._requires_grad]
    if pattern.tensor_lists:
        _place_lists(pattern, values, wire, parents, records)
    if parents and inference_tensors.exist and not plan.op.mutates and inference_tensors.are_all(values):
        with no_grad():
            return call(pattern, values)
    meta = plan.meta
    if meta is None:
        results = _finish(pattern, plan, session, values, wire, parents, modes)
        if modes.packs and parents and not plan.is_view:
            pack_saved(session, results, plan.grad_name)
        if parents and inference_tensors.exist and inference_tensors.is_among(values):
            inference_tensors.check_saved(pattern, values, results)
        return results
    new_id = session.new_id
    id = new_id()
    result = new_tensor(session, id, meta)
    if parents and plan.gives_gradient:
        result._requires_grad = True
        result._node = new_node(parents, plan.grad_name)
    if plan.is_view:
        _join(result, values[pattern.sources[plan.view_of]], plan)  # type: ignore[index]
    elif modes.inference:
        result._is_inference = True
    freed = session.take_dead() if session._dead else ()
    session.queue(Call(plan.index, session.sites.current(2), (id,), wire, freed), modes)
    if parents and inference_tensors.exist and inference_tensors.is_among(values):
        inference_tensors.check_saved(pattern, values, result)
    return result


def _finish(
    pattern: CallPattern, plan: CallPlan, session: ClientSession, values: tuple[Any, ...], wire: list[Any],
    parents: list[GradientEdge], modes: Modes,
) -> Any:  # fmt: skip
    """Finish a call that has several results or none, or a result whose shape the data tell."""
    if plan.op.mutates:
        return mutate(pattern, plan, session, values, wire, parents, modes)
    if plan.outs is None:
        return _wait_for_shapes(plan, session, wire, parents, modes)
    node = new_node(parents, plan.grad_name) if parents and plan.differentiable else None
    source = values[pattern.sources[plan.view_of]] if plan.is_view else None  # type: ignore[index]
    ids: list[int] = []
    results = []
    for meta in plan.outs:
        id = session.new_id()
        result = new_tensor(session, id, meta)
        if node is not None and meta.dtype.category >= 2:
            result._requires_grad, result._node = True, node
        if source is not None:
            _join(result, source, plan)
        elif modes.inference:
            result._is_inference = True
        ids.append(id)
        results.append(result)
    if node is not None:
        for number in plan.constants:
            results[number]._requires_grad, results[number]._node = False, None
    session.call(plan.index, session.sites.current(3), tuple(ids), wire, modes)
    if plan.late_error:
        wait_where_caught(session, plan.late_error)
    return plan.result_type(results) if plan.is_tuple else results[0]


def _join(view: Tensor, source: Tensor, plan: CallPlan) -> None:
    """Let a new view share what its source and all other views of the same memory share."""
    if source._is_inference:
        view._is_inference = True
    if plan.is_known_view:
        root = source._base
        if root is None:
            root = source
        aliases = root._aliases
        if aliases is None:
            aliases = root._aliases = Aliases()
        view._base, view._aliases, view._seen = root, aliases, aliases.version
    elif sharing.detached is not None:
        sharing.detached[id(view)] = view, source


def _add_lists(
    pattern: CallPattern, values: tuple[Any, ...], key: list[Any], session: ClientSession | None
) -> ClientSession | None:
    """Add the values that are lists to the key of a plan; return the session, None where no tensor tells it.

    Where nothing depends on the places of operands in their memory, the key has none, since a list may combine any.
    """
    has_places = pattern.has_places
    for index in pattern.lists:
        metas: Any = []
        for item in values[index]:
            kind = type(item)
            if kind is Tensor:
                its_session, meta = item._session, item._meta
                metas.append(meta if has_places or not meta.offset else meta.at_start)
            elif kind is int:  # a size, most often
                metas.append(item)
                continue
            elif kind in _TENSOR_TYPES:
                its_session, meta = item._session, item._meta
                metas.append(meta if has_places or not meta.offset else meta.at_start)
            else:
                metas = map(_key_of, values[index])
                session = _session_of(pattern.op, values[index], session)
                break
            if its_session is not session:
                if session is not None:
                    raise _several_sessions(pattern.op, session, its_session)
                session = its_session
        key.append(tuple(metas))
    return session


def _wire_arguments(pattern: CallPattern, plan: CallPlan, ids: list[int]) -> list[Any]:
    """Return the arguments as they travel, for a call whose tensors are not the first of them."""
    wire = plan.template.copy()
    for number, position in enumerate(pattern.positions):  # ``zip`` takes longer for so few
        wire[position] = ids[number]
    return wire


def _place_lists(
    pattern: CallPattern, values: tuple[Any, ...], wire: list[Any], parents: list[GradientEdge], records: bool
) -> None:
    no_grad = pattern.op.no_grad
    for index, position in pattern.tensor_lists:
        items = values[index]
        wire[position] = [None if t is None else t._id for t in items]
        if records and position not in no_grad:
            for tensor in items:
                if tensor is None:
                    continue
                if tensor._aliases is not None:
                    tensor._refresh()
                if tensor._requires_grad:
                    parents.append(tensor._node or tensor._gradient_edge())


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


def _several_sessions(op: Op, *sessions: ClientSession) -> Exception:
    if any([isinstance(session, ShapeSession) for session in sessions]):
        return OperandHasHandler(f"{op.public}: some operands have no elements")
    for session in sessions:
        session._require_open()  # that one of them is lost or ended is the better explanation
    return DeviceError(f"{op.public}: operands belong to different sessions; bring them to one with numpy()")


def _wait_for_shapes(
    plan: CallPlan, session: ClientSession, wire: list[Any], parents: list[GradientEdge], modes: Modes
) -> Any:
    """Run an operation whose result's shape depends on data: the one kind of call that waits for the server."""
    ids = tuple([session.new_id() for _ in range(max(len(plan.op.returns), 1))])
    try:
        session.call(plan.op.index, session.sites.current(4), ids, wire, modes)
        described = session.describe(ids, (plan.device,) * len(ids))
    except BaseException:
        for id in ids:
            session.free(id)
        raise
    results = [Tensor(session, id, meta) for id, (meta, _) in zip(ids, described, strict=True)]
    for result, (_, requires_grad) in zip(results, described, strict=True):
        if requires_grad and parents:
            result._requires_grad, result._node = True, new_node(parents, plan.grad_name)
    return plan.result_type(results) if plan.op.returns else results[0]
