"""``torch._ops``: the classes of what ``torch.ops`` has."""

from __future__ import annotations

from telegrad import ops as ops
from telegrad.ops import OpNamespace

from ..keys import DispatchKey as DispatchKey
from ..overloads import OpOverload as OpOverload
from ..overloads import OpOverloadPacket as OpOverloadPacket
from .higher_order import HigherOrderOperator as HigherOrderOperator

_OpNamespace = OpNamespace
_OpsNamespace = OpNamespace
OperatorBase = OpOverload
