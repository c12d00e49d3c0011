"""``Variable``, which wrapped tensors before they had gradients of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError

from ._client_pass import ClientPass, running


class VariableMeta(type):
    """Every tensor is an instance of ``Variable``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


def _call_within(running_pass: ClientPass, callback: Callable[[], None]) -> None:
    """Call a pass's last function, which may ask for another one."""
    outer, running.innermost = running.innermost, running_pass
    try:
        callback()
    finally:
        running.innermost = outer


class _Engine:
    """What programs ask of PyTorch's engine by its name."""

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Call a function when the pass that runs has accumulated its gradients; hooks and functions may ask for it.

        Raises AutogradError where no pass runs.
        """
        if running.innermost is None:
            raise AutogradError("Final callbacks can only be installed during backward pass.")
        running.innermost.final.append(partial(_call_within, running.innermost, callback))

    def is_checkpoint_valid(self) -> bool:
        """Tell whether a function of the program's may begin a pass within this one, which `inputs` would forbid."""
        return running.innermost is None or not running.innermost.has_inputs


class Variable(metaclass=VariableMeta):
    """``Variable(data)`` is a tensor with the elements and the memory of ``data``, without its history."""

    _execution_engine = _Engine()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        """Return the tensor; an empty one without data."""
        if volatile:
            note("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        return (Tensor() if data is None else data.detach()).requires_grad_(requires_grad)
