"""The short way of a call of a custom operator whose arguments are plain tensors and numbers, under no special modes.

It does what ``dispatch`` does with such a call: what was looked up for the first one is kept by the tensors' keys.
Whatever is less usual is ``UNUSUAL`` and goes the whole way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from telegrad._ops.batching import batching
from telegrad._ops.operand_classes import overrides
from telegrad._ops.sharing import sharing
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter

from . import keys
from .dispatch import checked_result
from .rules.aliases import check_separate
from .state import state

if TYPE_CHECKING:
    from .operator_entry import Operator
    from .schemas.types import SchemaType

UNUSUAL: Final[Any] = object()
"""What is returned for a call that goes the whole way."""
Recorder = Callable[[tuple[Any, ...], Callable[..., Any]], Any]
"""Runs a function on arguments, and records the derivative of the operator."""

_PLAIN: Final = (Tensor, Parameter)
_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "Tensor": _PLAIN, "int": (int,), "SymInt": (int,), "float": (float,), "bool": (bool,), "str": (str,),
    "Scalar": (int, float, bool),
}  # fmt: skip
_KEYS: Final = {device: mask | keys.INPLACE_OR_VIEW for device, mask in keys.BACKENDS.items()}
_BELOW: Final = keys.AFTER_AUTOGRAD.bits


def _classes_of(type: SchemaType) -> tuple[type, ...]:
    """Return the classes of the arguments of a type that kernels get as they are."""
    if type.kind == "optional" and type.element is not None:
        return (*_classes_of(type.element), None.__class__)
    return _CLASSES.get(type.kind, ())


class PlainCalls:
    """The plain calls of one operator that ``custom_op`` has defined, and that has no keyword-only arguments.

    ``function_of`` returns the program's function that a kernel of the definition runs now, and None for another
    kernel. ``autograd`` is the definition's kernel of the Autograd keys. Of operators that write into arguments, or
    return views of them, the kernel is run itself, which knows what else is to be looked at.
    """

    def __init__(
        self, operator: Operator, name: str, autograd: Callable[..., Any],
        function_of: Callable[[Any], Callable[..., Any] | None], is_functional: bool,
    ) -> None:  # fmt: skip
        arguments = operator.schema.arguments
        self._operator, self._name, self._autograd = operator, name, autograd
        self._function_of, self._is_functional = function_of, is_functional
        self._returns_tensor = [str(returned.type) for returned in operator.schema.returns] == ["Tensor"]
        self._classes = [_classes_of(argument.type) for argument in arguments]
        self._names = [argument.name for argument in arguments]
        self._least = sum(not argument.has_default for argument in arguments)
        self.recorder: Recorder | None = None
        """What records the derivative, where the definition has one and the operator takes no lists."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call, or return ``UNUSUAL``."""
        if kwargs:
            names = self._names[len(args) : len(args) + len(kwargs)]
            try:
                args = (*args, *[kwargs[name] for name in names])
            except KeyError:
                return UNUSUAL
            if len(names) < len(kwargs):
                return UNUSUAL
        classes, modes = self._classes, thread.modes
        if not self._least <= len(args) <= len(classes) or modes.inference or modes.autocast is not None:
            return UNUSUAL
        of_call, is_tracked = 0, False
        for arg, accepted in zip(args, classes, strict=False):
            kind = arg.__class__
            if kind not in accepted:
                return UNUSUAL
            if kind in _PLAIN:
                if arg._is_inference:
                    return UNUSUAL
                of_call |= _KEYS[arg._meta.device.type]
                if arg._requires_grad or arg._aliases is not None:
                    is_tracked = is_tracked or arg._is_tracked()
        if state.included or state.excluded or batching.levels or overrides.modes or overrides.dispatch_modes:
            return UNUSUAL
        kernels = self._operator.plain_kernels
        if of_call not in kernels:
            kernels[of_call] = self._kernel(of_call)
        kernel = kernels[of_call]
        function = None if kernel is None else self._function_of(kernel)
        if function is None:
            return UNUSUAL
        if is_tracked and modes.grad:
            return UNUSUAL if self.recorder is None else self.recorder(args, function)
        return self.run_below(function if self._is_functional else kernel, args)

    def _kernel(self, of_call: int) -> Any:
        """Return the kernel below autograd for these keys; None where the call does not get there by our own."""
        top, below = self._operator.select(of_call), self._operator.select(of_call & _BELOW)
        is_own = top is not None and top[1].function is self._autograd
        return below[1].function if is_own and below is not None and of_call else None

    def run_below(
        self, function: Callable[..., Any], args: tuple[Any, ...], note: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return what a function returns, run as below autograd, after it was checked; ``note`` is told of it there."""
        modes = thread.modes
        thread.modes = modes.but(grad=False)
        detached, excluded = sharing.detached, state.excluded
        sharing.detached, state.excluded = {}, excluded | keys.AUTOGRAD
        try:
            result = function(*args)
            if not self._is_separate(result, args):
                if self._is_functional:
                    check_separate(self._name, args, {}, result, function)
                result = checked_result(self._operator.schema, result)
            if note is not None:
                note(result)
            return result
        finally:
            sharing.detached, state.excluded, thread.modes = detached, excluded, modes

    def _is_separate(self, result: Any, args: tuple[Any, ...]) -> bool:
        """Whether a result is the one tensor that the operator returns, which shares no memory with an argument."""
        if result.__class__ is not Tensor or not self._returns_tensor or sharing.detached or not self._is_functional:
            return False
        root = result if result._base is None else result._base
        return not any([arg is root or (arg.__class__ in _PLAIN and arg._base is root) for arg in args])
