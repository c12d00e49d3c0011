"""Parameters: tensors that a module counts as its own when they are assigned to it."""

from __future__ import annotations

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType


class Parameter(Tensor):
    """A tensor to be trained. It shares the memory of ``data`` and requires a gradient unless told otherwise."""

    __slots__ = ()

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        shared = function("empty")(0) if data is None else data.detach()
        self._adopt(shared, requires_grad)

    @classmethod
    def owning(cls, data: Tensor, requires_grad: bool = True) -> Parameter:
        """A parameter in place of ``data``, which must not be used any more; costs no operation."""
        made = cls.__new__(cls)
        made._adopt(data, requires_grad)
        return made

    def _adopt(self, data: Tensor, requires_grad: bool) -> None:
        Tensor.__init__(self, data._session, data._id, data._meta)
        data._id = 0
        if requires_grad:
            self.requires_grad_()

    __hash__ = Tensor.__hash__


def new_parameter(*size: int, device: DeviceLike, dtype: DType | None) -> Parameter:
    """Return a parameter of this size in uninitialised memory."""
    return Parameter.owning(function("empty")(size, dtype=dtype, device=device))
