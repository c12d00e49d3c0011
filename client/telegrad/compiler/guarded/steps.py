"""What training steps do besides computing, where it is known: gradients are dropped and computed, optimizers step.

That is done as ever while a call is watched. What it depends on, and what it changes in the program, is noted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Final

from telegrad._functions.gradients import clear_gradients
from telegrad._tensor.autograd_graph import LeafNode, reachable
from telegrad._tensor.tensor import Tensor
from telegrad.autograd._passes import backward
from telegrad.autograd.anomaly_mode import anomalies
from telegrad.nn._traversal import TraversalMixin
from telegrad.optim import SGD, Adam, AdamW
from telegrad.optim.optimizer import EVERYONES_AFTER, EVERYONES_BEFORE, Optimizer

from . import purity
from .arguments import operation_of
from .calling import Calling

OPTIMIZERS: Final[frozenset[type]] = frozenset((Adam, AdamW, SGD))
"""Classes whose step, after the first one, is an operation for each group, and changes nothing that the client has."""
_PARTS: Final = ("_has_other_type", "_run", "_scaling", "_state_of", "_update", "_update_sparse", "_without_sparse")
"""What a step of one of these may call of its class."""
_NONE: Final = ("grad_scale", "found_inf")
_HOOKS: Final = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_RATE: Final = "lr"
_NOT_READ: Final = frozenset((_RATE, "params", "param_names", "initial_lr"))
_OF_PASSES: Final = frozenset(("gradient", "grad_tensors", "retain_graph"))


class Stepping(Calling):
    """Makes the calls that training steps consist of."""

    def _step_call(self, function: Any, args: Sequence[Any], kwargs: Any) -> Callable[[], Any] | None:
        """Return what makes a call that changes gradients or parameters; None for a function that is not known."""
        is_pass = function is vars(Tensor)["backward"] and purity.is_own(function)
        note = Stepping._note_pass if is_pass else _KNOWN.get(function)
        if note is None:
            return None
        note(self, *args, **kwargs)
        return partial(function, *args, **kwargs)

    def _note_clearing(self, parameters: Any, set_to_none: bool = True) -> None:
        """Note that the gradients of a list of parameters are dropped, or set to zero."""
        self._contents(parameters)
        for one in parameters:
            self._touch(one)
            if set_to_none:
                self._notes.gradients.drop(one)
            elif one._grad is not None and one._grad._requires_grad:
                self._notes.refuse("a gradient that requires one itself")

    def _touch(self, leaf: Tensor) -> None:
        """Note a leaf before its gradient is read or changed; the leaf is no argument, and was there before."""
        notes, gradient = self._notes, leaf._grad
        self._seen(leaf)
        if leaf._id not in notes.tensors:
            notes.refuse("the gradient of an argument, or of a tensor that the call makes")
        elif gradient is not None and (gradient._id in notes.tensors or gradient._id in notes.arguments):
            notes.refuse("a gradient that the program has elsewhere, too")
        else:
            reason = notes.gradients.add(leaf)
            if reason:
                notes.refuse(reason)

    def _note_pass(self, root: Any, *others: Any, **options: Any) -> None:
        """Note which leaves a backward pass gives a gradient; what it goes through was made in the call."""
        notes = self._notes
        notes.conditions.attribute(anomalies, "is_enabled", False)
        if others or not _OF_PASSES.issuperset(options) or type(root) is not Tensor or anomalies.is_enabled:
            notes.refuse("a backward pass with options, or of several tensors")
            return
        for value in options.values():
            self._operand(value)
        before = [operation_of(one) for one in (*notes.tensors.values(), *notes.given_tensors)]
        reached = reachable([root._gradient_edge()]) if root._requires_grad else ()
        if any([node is not None and node in reached for node in before]):
            notes.refuse("a backward pass through what was computed before")
        for node in reached:
            if node.extras is not None:
                notes.refuse("a backward pass through hooks")
            elif isinstance(node, LeafNode):
                leaf = node.tensor()
                if leaf is not None:
                    self._touch(leaf)

    def _note_step(self, optimizer: Any, closure: Any = None) -> None:
        """Note what the step of an optimizer reads, and which of its groups have rates that may change."""
        kind, notes = type(optimizer), self._notes
        if kind not in OPTIMIZERS or closure is not None:
            notes.refuse(f"a step of {kind.__name__}")
            return
        for name in _PARTS:
            part = getattr(kind, name, None)
            if isinstance(part, FunctionType) and not purity.is_own(part):
                notes.refuse(f"{name} of {kind.__name__}, which the program has replaced")
            if part is not None:
                notes.conditions.attribute(kind, name, part)
        if self._has_hooks(optimizer):
            notes.refuse("hooks of an optimizer")
        is_first = self.attribute(optimizer, "_has_stepped") is not True
        if is_first or self.attribute(optimizer, "_repeats") or any([self.attribute(optimizer, n) for n in _NONE]):
            notes.refuse("the first step of an optimizer, or one that scales gradients")
            return
        groups, state = self.attribute(optimizer, "param_groups"), self.attribute(optimizer, "state")
        self._contents(groups)
        for group in groups:
            self._note_group(kind, group, state)

    def _has_hooks(self, optimizer: Any) -> bool:
        """Make it a condition which hooks of optimizers there are, and tell whether there are any."""
        hooks = [EVERYONES_BEFORE, EVERYONES_AFTER, *[self.attribute(optimizer, name) for name in _HOOKS]]
        for one in hooks:
            self._notes.conditions.content(one)
        return any(hooks)

    def _note_group(self, kind: type, group: Any, state: Any) -> None:
        notes = self._notes
        if type(group) is not dict or type(state) is not defaultdict:
            notes.refuse("an optimizer's groups or state of a class of their own")
            return
        for name, value in group.items():
            if name not in _NOT_READ:
                notes.conditions.entry(group, name, value)
                if not all([type(one) in purity.CONSTANTS for one in (value if type(value) is tuple else (value,))]):
                    notes.refuse(f"the setting {name} of an optimizer")
        params = self.item(group, "params")
        self._contents(params)
        updated = [one for one in params if one._grad is not None]
        for one in params:
            self._touch(one)
        if len({one._meta.device for one in updated}) > 1:
            notes.refuse("an optimizer's group on several devices")
        if updated:
            self._note_rate(group)
        for one in updated:
            self._note_state(one, state, kind is not SGD or bool(group["momentum"]))

    def _note_rate(self, group: Any) -> None:
        """Note a learning rate: where it is a float, a call that is left out reads it again."""
        rate = group[_RATE]
        if type(rate) is not float:
            self._notes.conditions.entry(group, _RATE, rate)
            self._operand(self._read(rate))
        self._notes.rates.append(group if type(rate) is float else None)

    def _note_state(self, parameter: Tensor, state: Any, has_state: bool) -> None:
        entry = state.get(parameter)
        is_there = type(entry) is dict and bool(entry) and all([value is not None for value in entry.values()])
        if has_state and not is_there:
            self._notes.refuse("an optimizer's state that is yet to be made")
        elif entry is not None:
            self._notes.conditions.entry(state, parameter, entry)
            self._notes.conditions.content(entry)
            self._read_all(entry.values())

    def _note_walk(self, module: Any, *args: Any, **kwargs: Any) -> None:
        """Note which modules are below one, which is what a walk over all of them depends on."""
        conditions = self._notes.conditions
        for one in {id(one): one for _, one in module.named_modules()}.values():
            kind: Any = type(one)
            if kind.named_modules is not TraversalMixin.named_modules or kind.__hash__ is not object.__hash__:
                self._notes.refuse(f"a walk over {kind.__name__}, which does so in its own way")
            conditions.kind(one)
            conditions.attribute(kind, "named_modules", kind.named_modules)
            conditions.no_entry(vars(one), "named_modules")
            conditions.entry(vars(one), "_modules", one._modules)
            self._contents(one._modules)

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """Assign to an attribute, which is known of gradients that are dropped."""
        if type(owner) in purity.TENSORS and name == "grad" and value is None:
            self._notes.conditions.attribute(type(owner), name, Tensor.grad)
            self._touch(owner)
            self._notes.gradients.drop(owner)
        else:
            self._notes.refuse(f"an assignment to the attribute {name} of {type(owner).__name__}")
        setattr(owner, name, value)

    def _of_tensor(self, tensor: Any, name: str) -> Any:
        if name != "grad" or operation_of(tensor) is not None:
            return super()._of_tensor(tensor, name)
        self._notes.conditions.attribute(type(tensor), name, Tensor.grad)
        self._touch(tensor)
        return tensor.grad


_KNOWN: Final[dict[Any, Callable[..., None]]] = {
    clear_gradients: Stepping._note_clearing, backward: Stepping._note_pass, Optimizer.step: Stepping._note_step,
    TraversalMixin.named_modules: Stepping._note_walk, TraversalMixin._named_members: Stepping._note_walk,
}  # fmt: skip
