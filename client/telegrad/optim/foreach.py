"""The base of optimizers whose step is a sequence of operations on lists: an instruction each, however long they are.

Counts and other single numbers of a parameter's state are numbers of the client, so that no step waits for them; a
state dictionary has them as tensors of one element, as PyTorch's does.
"""

from __future__ import annotations

from typing import Any, ClassVar

from telegrad._functions.creation import tensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32

from ._lists import all_real, has_complex, real
from .optimizer import ADDED, Group, Optimizer

Tensors = list[Tensor]
State = dict[str, Any]


class ForeachOptimizer(Optimizer):
    """Base of optimizers that define ``_new_state`` and ``_step_lists``; ``_numbers`` names the single numbers."""

    _numbers: ClassVar[tuple[str, ...]] = ("step",)
    _added_settings = ADDED

    def _new_state(self, group: Group, parameter: Tensor) -> State:
        """Return the state of a parameter before its first step."""
        raise NotImplementedError

    def _step_lists(self, group: Group, params: Tensors, grads: Tensors, states: list[State]) -> None:
        """Change the parameters by their gradients, of which a maximized objective has the opposite ones already."""
        raise NotImplementedError

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        with no_grad():
            own = states = [self._state_of(group, parameter) for parameter in params]
            if has_complex(params):
                params, grads = all_real(params), all_real(grads)
                states = [{name: real(value) for name, value in state.items()} for state in own]
            if group.get("maximize"):
                grads = list(function("_foreach_neg")(grads))
            self._step_lists(group, params, grads, states)
        if states is not own:
            for state, changed in zip(own, states, strict=True):
                state.update({name: changed[name] for name in self._numbers})

    def _state_of(self, group: Group, parameter: Tensor) -> State:
        state = self.state[parameter]
        if not state:
            state.update(self._new_state(group, parameter))
        for name in self._numbers:
            if isinstance(state.get(name), Tensor):  # it was loaded
                state[name] = float(state[name].item())
        return state

    def _packed(self, entry: State) -> State:
        numbers = {name: _as_tensor(entry[name]) for name in self._numbers if name in entry}
        return {**entry, **numbers}


def _as_tensor(number: Any) -> Any:
    return number if isinstance(number, Tensor) else tensor(float(number), dtype=float32)


def number(value: Any) -> float:
    """Return a setting as a number; a tensor is read, at one round trip."""
    return float(value.item()) if isinstance(value, Tensor) else value


def advanced(states: list[State]) -> list[float]:
    """Count every parameter's steps up, and return the counts."""
    for state in states:
        state["step"] += 1
    return [state["step"] for state in states]


def entries(states: list[State], name: str) -> Tensors:
    """Return one entry of every state."""
    return [state[name] for state in states]


def zeros_like(parameter: Tensor) -> Tensor:
    """Return zeros in the shape and memory order of a parameter."""
    return function("zeros_like")(parameter.detach())  # type: ignore[no-any-return]


def with_decay(group: Group, params: Tensors, grads: Tensors) -> Tensors:
    """Return the gradients with that of the weight decay, which is ``weight_decay`` times the parameter."""
    decay = group["weight_decay"]
    return list(function("_foreach_add")(grads, params, alpha=decay)) if decay else grads


def accumulate_squares(averages: Tensors, grads: Tensors, share: float) -> None:
    """Move averages towards the squares of gradients: share * average + (1 - share) * grad ** 2"""
    function("_foreach_mul_")(averages, share)
    function("_foreach_addcmul_")(averages, grads, grads, 1 - share)
