"""A session's extensions: what the client has built and loaded, and calls of their functions.

Only a worker whose operator has allowed it runs code of clients: see ``require_host_code``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from server.engine.autograd.inplace import requires_grad
from server.engine.extensions import commands, library
from server.engine.extensions.builds import Build
from server.engine.extensions.functions import Plan, SessionFunction
from server.engine.extensions.prepared_call import PreparedCall
from server.engine.extensions.words import Instance
from server.engine.value import Value
from server.session.failures import as_telegrad_error
from server.session.requests import Deferred, answers
from server.session.state import SessionState
from telegrad_protocol import extension_messages, messages
from telegrad_protocol.errors import (
    ArgumentTypeError,
    ExtensionError,
    NotAllowedError,
    ProtocolError,
    ToolkitError,
)
from telegrad_protocol.extension_messages import ALWAYS_PLAN, GIVEN, INSTANCE, NEW
from telegrad_protocol.meta import CPU, Meta

from .wire_values import PLAIN, from_wire, to_wire

_MOST_PLANS: Final = 1 << 14
_FUNCTION_BYTES: Final = 1000
"""What the host holds for a function of an extension, besides the library's file."""
_YES: Final = ("1", "true", "yes", "on")


def require_host_code(state: SessionState) -> None:
    """Raise NotAllowedError unless host code of this session may run here.

    ``TELEGRAD_ALLOW_HOST_CODE=1`` allows it where the session has its worker for itself or shares it with sessions of
    its tenant, ``shared`` on any worker. What is set for the session's tenant comes before it.
    """
    allowed = state.host_code or os.environ.get("TELEGRAD_ALLOW_HOST_CODE", "").strip().lower()
    if allowed == "shared" or (allowed in _YES and state.isolation != "shared"):
        return
    if allowed in _YES:
        raise NotAllowedError(
            "extension: this server runs host code of a session on a worker of its own only: open one with "
            "connect(own_worker=True)"
        )
    raise NotAllowedError(
        "extension: this server runs no host code of its clients; its operator can allow it with "
        "TELEGRAD_ALLOW_HOST_CODE=1 (docs/extensions.md says what that means). A private server, connect(), allows it"
    )


@answers(extension_messages.BuildExtension)
def _build(state: SessionState, query: extension_messages.BuildExtension) -> Deferred:
    require_host_code(state)
    if not query.name.isidentifier():
        raise ArgumentTypeError(f"extension: expected a name that Python can import, got {query.name!r}")
    build = Build(query, _architecture(state, query))
    return Deferred([build], lambda: _loaded(state, query.name, build))


def _architecture(state: SessionState, query: extension_messages.BuildExtension) -> str:
    """Return the compute capability of the session's first GPU, which an extension with CUDA is compiled for.

    Raises ToolkitError where there is none, unless the program says what to compile for. PyTorch raises an OSError
    there, too, and packages then use what they have for the CPU.
    """
    for device, backend in state.backends.items():
        if device is not CPU:
            major, minor = backend.properties()["capability"]
            return f"{major}.{minor}"
    if commands.needs_gpu(query):
        raise ToolkitError(
            "extension: the session has no GPU to compile CUDA sources for; connect to a server with one, or name "
            "architectures in TORCH_CUDA_ARCH_LIST to compile without one"
        )
    return ""


def _loaded(state: SessionState, name: str, build: Build) -> dict[str, Any]:
    """Load what was built, and tell the client of it; what fails is part of the answer, whose time has come."""
    succeeded, log = build.finish()
    if not succeeded:
        return {"error": "compile", "log": log}
    try:
        return {"error": "", "log": log, **_describe(state, name, build.library)}
    except Exception as error:  # the client waits for an answer, whatever its library is
        return {"error": "load", "log": as_telegrad_error(error, "load").message}


def _describe(state: SessionState, name: str, path: Path) -> dict[str, Any]:
    functions = state.extensions.functions
    first = len(functions)
    nbytes = 0 if path in {function.library.path for function in functions} else path.stat().st_size
    state.host_memory.note(nbytes)
    loaded = library.load(path)
    state.host_memory.note(_FUNCTION_BYTES * len(loaded.functions))
    for function in loaded.functions:
        owner = "" if function.owner < 0 else f"{loaded.classes[function.owner][0]}."
        called = function.name if "::" in function.name else f"{name}.{owner}{function.name}"
        functions.append(SessionFunction(loaded, function.number, called))
    told = [
        [first + f.number, f.name, f.doc, f.result, f.is_exported, f.owner, f.role, f.unnamed, f.by_place,
         [[p.name, p.type, *[to_wire(value) for value in p.default]] for p in f.parameters]]
        for f in loaded.functions
    ]  # fmt: skip
    operators = [
        [space, schema, key, first + number if number >= 0 else -1, defines]
        for space, schema, key, number, defines in loaded.operators
    ]
    attributes = [[key, to_wire(value)] for key, value in loaded.attributes]
    return {
        "functions": told,
        "operators": operators,
        "attributes": attributes,
        "doc": loaded.doc,
        "classes": loaded.classes,
        "modules": loaded.modules,
    }


def call_extension(state: SessionState, call: extension_messages.CallExtension) -> None:
    """Handle the instruction."""
    if call.freed:
        values = state.values
        for id in call.freed:
            values.pop(id, None)
    extensions = state.extensions
    plan = extensions.plans.get(call.plan)
    if plan is not None and plan.prepared is not None and state.capture is None:
        made = plan.prepared.call(state.values, call.args)
        if made is not None:
            state.operations += 1
            if isinstance(made, tuple):
                _bind(state, call, plan, *made)
            elif made.meta is plan.fresh and len(call.outs) == 1:
                state.values[call.outs[0]] = made
            else:
                _bind(state, call, plan, made, [])
            return
    if not 0 <= call.function < len(extensions.functions):
        raise ProtocolError(f"there is no function number {call.function}")
    function = extensions.functions[call.function]
    if state.capture is not None:
        state.capture.refuse_code(function.name)
    for backend in state.backends.values():
        backend.flush()  # the function may launch kernels of its own
    tensors: list[Value] = []
    args = [arg if arg.__class__ in PLAIN else from_wire(state, arg, tensors) for arg in call.args]
    result = function.library.call(function.number, function.name, args)
    state.operations += 1
    if call.request is not None:
        _tell(state, call, function, args, result, tensors)
    elif plan is not None:
        _bind(state, call, plan, result, tensors)
    elif call.plan or call.outs:
        raise ProtocolError(f"there is no plan number {call.plan} of calls of {function.name}")


def _tell(
    state: SessionState, call: extension_messages.CallExtension, function: SessionFunction, args: list[Any],
    result: Any, tensors: list[Value],
) -> None:  # fmt: skip
    """Answer with what a function has returned; new tensors get numbers of the server's."""

    def show(value: Any) -> Any:
        if value.__class__ is Instance:
            id = state.new_id()
            state.values[id] = value  # type: ignore[assignment]  # as modules and kernels are
            return [INSTANCE, id, value.type]
        position = _position(value, tensors)
        if position >= 0:
            return [GIVEN, position]
        id, meta = state.new_id(), value.meta
        state.values[id] = value
        described = (meta.shape, meta.strides, meta.offset, meta.dtype.code, meta.device.name)
        return [NEW, id, described, requires_grad(value), _base(value, tensors)]

    plan, plans = 0, state.extensions.plans
    if len(plans) < _MOST_PLANS and (call.plan == ALWAYS_PLAN or not function.library.has_read_data):
        expected = _expectation(result, tensors)
        if expected is not None:
            plan = len(plans) + 1
            plans[plan] = Plan(expected, PreparedCall.of(*function, args), function.name, _fresh(expected))
    shown = to_wire(result, show)
    state.replies.add(messages.Answer(call.request or 0, [shown, plan]))


def _bind(
    state: SessionState, call: extension_messages.CallExtension, plan: Plan, result: Any, tensors: list[Value]
) -> None:
    """Give new tensors the client's numbers, if they are what the client expects."""
    if _expectation(result, tensors) != plan.expected:
        raise ExtensionError(
            f"{plan.name}: it returns other shapes or types than it did for the same kind of arguments before; set "
            f"its attribute waits = True, so that each call waits for its results"
        )
    if result.__class__ is Value and len(call.outs) == 1:
        state.values[call.outs[0]] = result
        return
    new = [value for value in _flat(result) if _position(value, tensors) < 0]
    if len(new) != len(call.outs):
        raise ProtocolError(f"{len(call.outs)} ids for {len(new)} results")
    state.values.update(zip(call.outs, new))


def _expectation(result: Any, tensors: list[Value]) -> Any:
    """Return what is the same for each call that a plan stands for; None where plain values are among the results."""
    if result.__class__ is Value:
        position = _position(result, tensors)
        return position if position >= 0 else (result.meta, requires_grad(result), _base(result, tensors))
    if result.__class__ in (list, tuple):
        parts = [_expectation(item, tensors) for item in result]
        return None if None in parts else (result.__class__, *parts)
    return None


def _fresh(expected: Any) -> Meta | None:
    """Return the meta of a result that is one new tensor with memory of its own and no gradient; None of others."""
    return expected[0] if expected.__class__ is tuple and expected[1:] == (False, -1) else None


def _flat(result: Any) -> list[Value]:
    if result.__class__ is Value:
        return [result]
    return [value for item in result for value in _flat(item)]


def _position(value: Value, tensors: list[Value]) -> int:
    for position, tensor in enumerate(tensors):
        if tensor is value:
            return position
    return -1


def _base(value: Value, tensors: list[Value]) -> int:
    """Return the position of the tensor whose memory a value shares; -1 where there is none."""
    storage = value.storage
    for position, tensor in enumerate(tensors):
        if tensor.storage is storage:
            return position
    return -1
