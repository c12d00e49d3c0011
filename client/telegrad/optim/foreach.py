"""The base of optimizers whose step is a sequence of operations on lists: an instruction each, however long they are.

Counts and other single numbers of a parameter's state are numbers of the client, so that no step waits for them; who
reads them finds tensors of one element, as in PyTorch. With ``capturable`` they are tensors on the parameter's GPU,
which each replay of a captured step reads and changes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from telegrad._session.grad_mode import is_grad_enabled, set_grad_enabled
from telegrad._tensor.tensor import Tensor

from ._lists import all_real, function, has_complex, real
from ._states.numbered import NumberedState
from ._states.placed import PlacedState
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
        is_recorded = bool(group.get("differentiable"))
        with set_grad_enabled(is_recorded):
            own = [self._state_of(group, parameter) for parameter in params]
            states = [_apart(state.opened()) if is_recorded else state.opened() for state in own]
            changed = states
            if has_complex(params):
                params, grads = all_real(params), all_real(grads)
                states = [{name: real(value) for name, value in state.items()} for state in states]
            if group.get("maximize"):
                grads = list(function("_foreach_neg")(grads))
            self._step_lists(group, params, grads, states)
            for state, entry, opened in zip(own, changed, states, strict=True):
                state.close(opened)
                if is_recorded:
                    state.update({name: entry[name] for name in entry if name not in self._numbers})

    def _state_of(self, group: Group, parameter: Tensor) -> NumberedState | PlacedState:
        state = self.state[parameter]
        is_placed = bool(group.get("capturable")) and parameter.is_cuda
        if isinstance(state, PlacedState if is_placed else NumberedState):
            return state
        entry = state or self._new_state(group, parameter)  # there was no step, it was loaded, or the group has changed
        names = self._numbers
        made = PlacedState(entry, names, parameter) if is_placed else NumberedState(entry, names)
        self.state[parameter] = made
        return made

    def _packed(self, entry: State) -> State:
        return (
            entry if isinstance(entry, (NumberedState, PlacedState)) else NumberedState(entry, self._numbers)
        ).packed()


def _apart(entry: State) -> State:
    """Return a state whose tensors a step may overwrite: the steps before it have saved the former ones."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in entry.items()}


def number(value: Any) -> float:
    """Return a setting as a number; a tensor is read, at one round trip."""
    return float(value.item()) if isinstance(value, Tensor) else value


def rate(group: Group, states: list[State]) -> Any:
    """Return the learning rate: as it is where the states' numbers are tensors, which wait for nothing; or a number."""
    return group["lr"] if is_placed(states) else setting(group["lr"])


def setting(value: Any) -> Any:
    """Return a setting as it is where the step is differentiated, which may be by it; or a number."""
    return value if is_grad_enabled() else number(value)


def is_placed(states: list[State]) -> bool:
    """Whether the numbers of the states are tensors on the device."""
    return isinstance(states[0]["step"], Tensor)


def advanced(states: list[State]) -> list[Any]:
    """Count every parameter's steps up, and return the counts: numbers, or float64 for the powers taken of them."""
    for state in states:
        state["step"] += 1
    return [state["step"].double() if isinstance(state["step"], Tensor) else state["step"] for state in states]


def entries(states: list[State], name: str) -> Tensors:
    """Return one entry of every state."""
    return [state[name] for state in states]


def zeros_like(parameter: Tensor) -> Tensor:
    """Return zeros in the shape and memory order of a parameter."""
    return function("zeros_like")(parameter.detach())  # type: ignore[no-any-return]


def with_decay(group: Group, params: Tensors, grads: Tensors) -> Tensors:
    """Return the gradients with that of the weight decay, which is ``weight_decay`` times the parameter."""
    decay = group["weight_decay"]
    if is_grad_enabled():
        return [plus(grad, parameter, decay) for grad, parameter in zip(grads, params, strict=True)]
    return list(function("_foreach_add")(grads, params, alpha=number(decay))) if decay else grads


def plus(tensor: Any, other: Tensor, factor: Any) -> Any:
    """Return tensor + factor * other; gradients flow to a factor that is a tensor."""
    return tensor + factor * other.clone() if isinstance(factor, Tensor) else tensor.add(other, alpha=factor)


def accumulate_squares(averages: Tensors, grads: Tensors, share: float) -> None:
    """Move averages towards the squares of gradients: share * average + (1 - share) * grad ** 2"""
    function("_foreach_mul_")(averages, share)
    function("_foreach_addcmul_")(averages, grads, grads, 1 - share)


def add_multiples(params: Tensors, tensors: Tensors, factors: list[Any]) -> None:
    """Add each tensor times its factor, a number or a tensor of one, to a parameter."""
    function("_foreach_add_")(params, list(function("_foreach_mul")(tensors, factors)))


def add_quotients(params: Tensors, dividends: Tensors, divisors: Tensors, factors: list[Any]) -> None:
    """Add factor * dividend / divisor to each parameter; factors are numbers, or tensors of one."""
    if isinstance(factors[0], Tensor):
        add_multiples(params, list(function("_foreach_div")(dividends, divisors)), factors)
    else:
        function("_foreach_addcdiv_")(params, dividends, divisors, factors)


def add_scaled(params: Tensors, tensors: Tensors, factor: Any) -> None:
    """Add each tensor times one factor, a number or a tensor of one, to a parameter."""
    if isinstance(factor, Tensor):
        add_multiples(params, tensors, [factor] * len(params))
    else:
        function("_foreach_add_")(params, tensors, alpha=factor)
