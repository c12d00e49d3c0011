"""``call`` as functions and operators know it, and ``hold`` as compiled functions do: in C where that is compiled.

Whatever is unusual about a call, the one in C leaves to Python's, which says what every call does. So it is with
conditions.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from telegrad._ops import call as _python
from telegrad._ops.call_pattern import CallPattern
from telegrad._ops.call_pattern import types_of as types_of_in_python
from telegrad._ops.call_plan import PLANS, CallPlan
from telegrad._ops.sharing import sharing
from telegrad._session import own_code
from telegrad._session.call_sites import CallSites
from telegrad._session.devices import session_for
from telegrad._session.grad_mode import entered_inference
from telegrad._session.parts.modal import MODAL, STOPPABLE
from telegrad._session.parts.repeating import RepeatingQueue
from telegrad._session.sending import send_queue
from telegrad._session.sending.batch_ends import LEAVABLE, BatchEnds
from telegrad._session.sending.send_queue import SendQueue
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, Modes, thread
from telegrad._tensor.autograd_graph import Aliases, DeferredNode, LeafNode, OperationNode
from telegrad._tensor.receivers import Receivers
from telegrad._tensor.tensor import Tensor
from telegrad._tensor.tensor import new_tensor as new_tensor_in_python
from telegrad._transport import socket_transport
from telegrad._transport.ahead import Ahead
from telegrad._transport.direct_channel import DirectChannel
from telegrad._transport.socket_transport import SocketTransport
from telegrad_protocol import dtypes, pace, wire
from telegrad_protocol.extension_messages import CallExtension
from telegrad_protocol.link import Kept
from telegrad_protocol.messages import Answer, Call, Data, Free
from telegrad_protocol.meta import Meta
from telegrad_protocol.native import processors
from telegrad_protocol.pace import Pace

from . import ABSENT, load

_READ: Final = (
    "_aliases", "_id", "_meta", "_node", "_requires_grad", "_seen", "_session", "__getattribute__",
)  # fmt: skip
"""What calls read of their operands."""


def _is_usual(kind: type) -> bool:
    """Whether operands of a class have their attributes where ``Tensor`` has them."""
    return issubclass(kind, Tensor) and all([getattr(kind, name) is getattr(Tensor, name) for name in _READ])


def _numbers() -> tuple[float, ...]:
    """Return the numbers that functions in C share with those of Python."""
    look = round(socket_transport.LOOK_SECONDS * 1000)
    sizes = send_queue.BATCH_OPERATIONS, send_queue.LONG_BATCH, send_queue._LONG_RUN
    rules = pace.MEMORY_SECONDS, float(pace.GROWTH), pace.FEWEST, pace.MOST_SUBMISSIONS, pace._LEAST_SECONDS
    return wire.BATCH, look, processors.can_wait_awake(), *rules, *sizes


def _prepared() -> Any:
    native = load()
    if native is None:
        return None
    finalizer, complete = native.prepare(
        Tensor=Tensor, OperationNode=OperationNode, Aliases=Aliases, Modes=Modes, CallPattern=CallPattern,
        CallPlan=CallPlan, SendQueue=SendQueue, CallSites=CallSites, Call=Call, Meta=Meta, LeafNode=LeafNode,
        DeferredNode=DeferredNode, ClientSession=ClientSession, count=count, thread=thread, default_modes=DEFAULT,
        plans=PLANS, dtypes=vars(dtypes), own_files=own_code.own_files,
        other_files=own_code.other_files, is_own=own_code.is_own, is_usual=_is_usual, getframe=sys._getframe,
        call=_python.call, join=_python._join, finalize=Tensor.__del__, deque=deque, absent=ABSENT, sharing=sharing,
        entered_inference=entered_inference, tensor_types=_python._TENSOR_TYPES, Pace=Pace, Ahead=Ahead,
        BatchEnds=BatchEnds, SocketTransport=SocketTransport, DirectChannel=DirectChannel, Kept=Kept, Free=Free,
        Data=Data, Answer=Answer, encode_batch=wire.encoder.encode, decode_replies=wire._replies.decode,
        pace_complete=Pace.complete, numbers=_numbers(),
        send_batch=SocketTransport.send_batch, CallExtension=CallExtension, modal=MODAL, stoppable=STOPPABLE,
        session_for=session_for, leavable=LEAVABLE,
    )  # fmt: skip
    Tensor.__del__ = finalizer  # type: ignore[method-assign]
    Pace.complete = complete  # type: ignore[method-assign]
    ClientSession.send_queued = staticmethod(native.send_queued)  # type: ignore[method-assign]
    ClientSession.take_answer = staticmethod(native.take_answer)  # type: ignore[method-assign]
    BatchEnds.places_of = staticmethod(native.places_of)
    Receivers.usual = staticmethod(native.usual_receivers)  # type: ignore[method-assign]
    RepeatingQueue.take_numbers = staticmethod(native.take_numbers)  # type: ignore[method-assign]
    return native


native: Final = _prepared()
"""The module of C; None where calls are Python's."""
call: Final[Callable[..., Any]] = _python.call if native is None else native.call
types_of: Final[Callable[..., tuple[Any, ...]]] = types_of_in_python if native is None else native.types_of
ids_of: Final[Callable[[tuple[Any, ...], list[Any]], list[int]] | None] = None if native is None else native.ids_of
"""Returns the numbers of tensors, each of which is given, or by its place in the list."""
new_tensor: Final[Callable[[ClientSession, int, Meta], Tensor]] = (
    new_tensor_in_python if native is None else native.new_tensor
)
"""Returns the handle of the tensor of a number, which lies so."""
match_arguments: Final[Callable[..., list[Tensor] | None] | None] = None if native is None else native.match_arguments
"""Returns the tensors of a call, given what another one was given as ``guarded.arguments`` has it; None if in doubt."""
gradients_hold: Final[Callable[[tuple[Any, ...], Any], list[Any] | None] | None] = (
    None if native is None else native.gradients_hold
)
"""Returns the gradients of leaves of a session, by row as in ``guarded.gradients``; None if these are others."""
change_gradients: Final[Callable[[tuple[Any, ...], Any, int, list[Any]], None] | None] = (
    None if native is None else native.change_gradients
)
"""Gives leaves the gradients that rows say they have after a call with this first number, given those of before."""
hold: Final[Callable[[tuple[Any, ...], bytearray], bool] | None] = None if native is None else native.hold
"""Tells whether all conditions hold that it is given, by kind as in ``guarded.native_rows``, and eight bytes for each
of the dicts among them, in which it notes their versions. Where it says no, Python is to say."""
call_extension: Final[Callable[[tuple[Any, ...], tuple[Any, ...]], Any] | None] = (
    None if native is None else native.call_extension
)
"""Makes a call of a function of an extension, given what ``ExtensionFunction`` knows of it; ``ABSENT`` if in doubt."""
