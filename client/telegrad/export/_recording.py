"""One run of a module at given sizes, recorded."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from telegrad._ops import shape_operands as _shape_operands  # it enters who answers calls with such operands
from telegrad._ops.functions import function
from telegrad._session.current import using
from telegrad._session.own_code import is_own
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.exporting import exporting
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ProgramError, TelegradError
from telegrad_protocol.meta import Meta

from ._session import RecordedStep, RecordingSession, Upload

_ = _shape_operands


class State(NamedTuple):
    """A parameter or buffer of a module, with its path; ``registry`` is where its module keeps it as ``name``."""

    path: str
    tensor: Tensor
    registry: dict[str, Any]
    name: str
    kind: str
    is_persistent: bool


class Recording(NamedTuple):
    """What one run did. Inputs and state have the numbers from 1 on; ``results`` are the leaves that were returned."""

    steps: list[RecordedStep]
    results: list[Any]
    structure: TreeSpec
    uploads: dict[int, Upload]
    captured: dict[int, Tensor]
    metas: dict[int, Meta]
    written: frozenset[int]


def state_of(module: Any) -> list[State]:
    """Return the parameters of a module, and then its buffers, those under several names each time."""
    found = []
    for path, part in module.named_modules(remove_duplicate=False):
        for kind, registry in (("parameter", part._parameters), ("buffer", part._buffers)):
            for name, tensor in registry.items():
                if tensor is not None:
                    persistent = name not in part._non_persistent_buffers_set
                    found.append(State(f"{path}.{name}" if path else name, tensor, registry, name, kind, persistent))
    return sorted(found, key=lambda one: one.kind != "parameter")


def record(
    module: Any, state: Sequence[State], leaves: Sequence[Any], structure: TreeSpec, metas: Mapping[int, Meta]
) -> Recording:
    """Run a module on arguments with tensors of these metas, by the place of the leaf, and return what it did."""
    session = RecordingSession()
    given = list(leaves)
    for place, meta in metas.items():
        given[place] = session.make(meta)
    args, kwargs = tree_unflatten(given, structure)
    with using(session), exporting(), session.module_calls.noted(module), _replaced(state, session):
        returned = module(*args, **kwargs)
        for item in state:
            _write_back(item, session)
        results, result_structure = tree_flatten(returned)
        results = [_result(leaf, session) for leaf in results]
    of_state = {id(item.tensor) for item in state}
    captured = {own._id: tensor for tensor, own in session.captured.values() if id(tensor) not in of_state}
    return Recording(
        session.steps, results, result_structure, session.uploads, captured, session.metas, frozenset(session.written)
    )


@contextmanager
def _replaced(state: Sequence[State], session: RecordingSession) -> Iterator[None]:
    """Have the module's tensors replaced by what stands for them, in this block."""
    for item in state:
        item.registry[item.name] = session.stand_in(item.tensor)
    try:
        yield
    finally:
        for item in state:
            item.registry[item.name] = item.tensor


def _write_back(item: State, session: RecordingSession) -> None:
    """Record that a buffer which the module has assigned anew is written to."""
    own, now = session.stand_in(item.tensor), item.registry.get(item.name)
    if now is own:
        return
    if not isinstance(now, Tensor) or now._meta.shape != own._meta.shape or now.dtype is not own.dtype:
        raise ProgramError(f"export: the module replaces {item.path} by something of another shape or type")
    function("copy_")(own, now)
    item.registry[item.name] = own


def _result(leaf: Any, session: RecordingSession) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf if leaf._session is session else session.stand_in(leaf)


def line_of(error: BaseException) -> str:
    """Return the innermost line outside of telegrad that an error has come through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_own(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else "an unknown line"


def told(error: BaseException) -> str:
    """Return what an error says, in one line."""
    text = error.message if isinstance(error, TelegradError) else str(error)
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"
