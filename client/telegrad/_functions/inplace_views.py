"""In-place forms of view operations: ``x.unsqueeze_(0)`` makes the handle ``x`` a view of the tensor that it was."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.mutation import note_change
from telegrad._ops.outputs import check_made_outside
from telegrad._ops.signatures import method_signature
from telegrad._session.grad_mode import enable_grad, inference_mode
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError, InplaceError

_VIEWS = ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims", "as_strided")


def _inplace(name: str) -> Any:
    run = function(name)

    def run_in_place(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if thread.modes.records:
            check_made_outside(f"{name}_", self)
        if self.requires_grad and self._is_tracked() and self.is_leaf:
            if thread.modes.records:
                raise InplaceError(f"{name}_: a leaf tensor that requires grad is modified in place; use no_grad()")
            self._become(run(self.detach(), *args, **kwargs))
        else:
            with inference_mode(False), enable_grad():  # it has its history whatever the mode is
                view = run(self, *args, **kwargs)
            _exchange(self, view)
        note_change(self)
        return self

    run_in_place.__name__ = f"{name}_"
    run_in_place.__signature__ = method_signature(run.__signature__)  # type: ignore[attr-defined]
    run_in_place.__doc__ = f"In-place form of ``{name}``: changes this tensor's shape and strides."
    return run_in_place


_PARTS = ("_id", "_meta", "_node", "_requires_grad", "_aliases", "_seen")
"""What makes a tensor the view that it is; classes that keep it elsewhere have ``_parts_of_views``."""


def _exchange(self: Tensor, view: Tensor) -> None:
    """Let ``self`` become its own ``view``: the tensor that others are views of goes on to be ``self``."""
    for part in getattr(self, "_parts_of_views", _PARTS):
        ours = getattr(self, part)
        setattr(self, part, getattr(view, part))
        setattr(view, part, ours)
    view._base = None


def detach_(self: Tensor) -> Tensor:
    """Make this tensor a leaf without history."""
    if self._base is not None:
        raise AutogradError("detach_: a view cannot be detached in place; use detach()")
    if self.requires_grad:
        detached = self.detach()
        self._id, detached._id = detached._id, self._id
        self._node, self._requires_grad, self._aliases = None, False, None
    return self


METHODS: dict[str, Any] = {"detach_": detach_, **{f"{name}_": _inplace(name) for name in _VIEWS}}
