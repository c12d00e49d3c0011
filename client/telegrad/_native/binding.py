"""``call`` as functions and operators know it: the one in C where that is compiled, else Python's.

Whatever is unusual about a call, the one in C leaves to Python's, which says what every call does.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from telegrad._ops import call as _python
from telegrad._ops.call_pattern import CallPattern
from telegrad._ops.call_plan import PLANS, CallPlan
from telegrad._session import own_code
from telegrad._session.call_sites import CallSites
from telegrad._session.sending.send_queue import SendQueue
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, Modes, thread
from telegrad._tensor.autograd_graph import Aliases, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.messages import Call

from . import load

_READ: Final = (
    "_aliases", "_id", "_meta", "_node", "_requires_grad", "_seen", "_session", "__getattribute__",
)  # fmt: skip
"""What calls read of their operands."""


def _is_usual(kind: type) -> bool:
    """Whether operands of a class have their attributes where ``Tensor`` has them."""
    return issubclass(kind, Tensor) and all([getattr(kind, name) is getattr(Tensor, name) for name in _READ])


native: Final = load()
"""The module of C; None where calls are Python's."""


def _chosen() -> Callable[..., Any]:
    if native is None:
        return _python.call
    finalizer = native.prepare(
        Tensor=Tensor, OperationNode=OperationNode, Aliases=Aliases, Modes=Modes, CallPattern=CallPattern,
        CallPlan=CallPlan, SendQueue=SendQueue, CallSites=CallSites, Call=Call, ClientSession=ClientSession,
        thread=thread, default_modes=DEFAULT, plans=PLANS, dtypes=vars(dtypes), own_files=own_code.own_files,
        other_files=own_code.other_files, is_own=own_code.is_own, is_usual=_is_usual, getframe=sys._getframe,
        call=_python.call, join=_python._join, finalize=Tensor.__del__, deque=deque,
    )  # fmt: skip
    Tensor.__del__ = finalizer  # type: ignore[method-assign]
    return native.call  # type: ignore[no-any-return]


call: Final = _chosen()
