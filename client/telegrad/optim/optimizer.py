"""The base of all optimizers: parameter groups, state, and one instruction per group and step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .. import _modes
from .._tensor import Tensor

Group = dict[str, Any]


class Optimizer:
    """Updates parameters from their gradients. Subclasses say how, in ``_update``."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentTypeError("optimizer: params must be an iterable of tensors or dicts, not a tensor")
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        listed = list(params)
        if not listed:
            raise ArgumentError("optimizer: got an empty parameter list")
        for group in listed if isinstance(listed[0], dict) else [{"params": listed}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own."""
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else [p[1] if isinstance(p, tuple) else p for p in params]
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise ArgumentTypeError(f"optimizer: can only optimize tensors, not {type(param).__name__}")
            if not param.is_leaf:
                raise ArgumentError("optimizer: can only optimize leaf tensors")
            if id(param) in known:
                raise ArgumentError("optimizer: a parameter appears in more than one group")
        if len({id(p) for p in params}) != len(params):
            raise ArgumentError("optimizer: a parameter appears twice in a group")
        group = {**self.defaults, **param_group, "params": params}
        missing = [name for name, value in group.items() if value is REQUIRED]
        if missing:
            raise ArgumentError(f"optimizer: the option {missing[0]} must be given")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or set them to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                if param._grad is None:
                    continue
                if set_to_none:
                    param.grad = None
                else:
                    with _modes.no_grad():
                        param._grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; no round trip."""
        loss = None
        if closure is not None:
            with _modes.enable_grad():
                loss = closure()
        with _modes.no_grad():
            for group in self.param_groups:
                params = [p for p in group["params"] if p._grad is not None]
                if params:
                    self._update(group, params)
        return loss

    def _update(self, group: Group, params: list[Tensor]) -> None:
        raise NotImplementedError

    def _buffers(self, params: list[Tensor], name: str) -> list[Tensor]:
        """One state tensor per parameter, zeros at first."""
        return [self._state_of(param, name) for param in params]

    def _state_of(self, param: Tensor, name: str) -> Tensor:
        state = self.state[param]
        found = state.get(name)
        if found is None:
            from .._functions import function

            found = state[name] = function("zeros_like")(param.detach())
        return found  # type: ignore[no-any-return]

    # -- saving ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options and state; parameters are named by their position."""
        numbers = self._numbers()
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def _numbers(self) -> dict[int, int]:
        params = [p for group in self.param_groups for p in group["params"]]
        return {id(p): number for number, p in enumerate(params)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; groups must have the same sizes."""
        saved = state_dict["param_groups"]
        if [len(g["params"]) for g in saved] != [len(g["params"]) for g in self.param_groups]:
            raise ArgumentError("load_state_dict: the saved groups do not have the sizes of this optimizer's groups")
        for group, loaded in zip(self.param_groups, saved, strict=True):
            group.update({k: v for k, v in loaded.items() if k != "params"})
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [n for group in saved for n in group["params"]]
        by_number = dict(zip(numbers, params, strict=True))
        self.state.clear()
        for number, state in state_dict["state"].items():
            param = by_number[int(number)]
            self.state[param] = {name: _adapted(name, value, param) for name, value in state.items()}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


REQUIRED: Any = object()


def _adapted(name: str, value: Any, param: Tensor) -> Any:
    """A loaded state tensor in the type and place of its parameter; step counts keep their type."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone() if name == "step" else value.detach().clone().to(param.device, param.dtype)


def check_range(name: str, value: Any, low: float = 0.0, high: float | None = None) -> None:
    """Refuse an option outside of its range."""
    if isinstance(value, Tensor):
        return
    if not low <= value or (high is not None and not value < high):
        raise ArgumentError(f"optimizer: invalid {name}: {value}")


__all__ = ["REQUIRED", "Group", "Optimizer", "check_range"]
