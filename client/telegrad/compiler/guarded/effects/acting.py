"""Calls that have effects which can be had again, and steps with scaled losses, for functions that are watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from telegrad._session.grad_mode import enable_grad
from telegrad.amp.grad_scaler import GradScaler
from telegrad.compiler.guarded import purity
from telegrad.compiler.guarded.steps import OPTIMIZERS, Stepping
from telegrad.optim.lr_scheduler import LRScheduler
from telegrad.optim.optimizer import Optimizer
from telegrad.optim.swa_utils import AveragedModel

from . import lasting

_PARTS: Final = ("_require_scale", "_scale_at", "_set_scale", "_step_on_the_server", "step", "unscale_", "update")
"""What steps with a scaled loss may call of ``GradScaler``."""
_SETTINGS: Final = ("_backoff_factor", "_enabled", "_growth_factor", "_growth_interval", "_progress")
_TENSORS: Final = ("_growth_tracker", "_scale")


class Acting(Stepping):
    """Makes calls of schedulers, of ``GradScaler``, of ``list.append``, and steps with closures."""

    def _step_call(self, function: Any, args: Sequence[Any], kwargs: Any) -> Callable[[], Any] | None:
        if function is Optimizer.step or (function is _step_of(args) and len(args) + len(kwargs) > 1):
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            if closure is not None and len(args) + len(kwargs) == 2:
                return partial(self._step_with, function, args[0], closure)
        if function is LRScheduler.step and args and type(args[0]) in lasting.BY_FUNCTIONS:
            return partial(self._step_by_functions, *args, **kwargs)
        if function is AveragedModel.update_parameters:
            self._note_average(*args)
            return None
        note = _KNOWN.get(function)
        if note is None:
            return super()._step_call(function, args, kwargs)
        note(self, *args, **kwargs)
        return partial(function, *args, **kwargs)

    def _step_with(self, step: Any, optimizer: Any, closure: Any) -> Any:
        """Make a step whose closure computes the gradients: its calls are watched as others are."""
        if type(optimizer) not in OPTIMIZERS or self._has_hooks(optimizer):
            self._notes.refuse(f"a step of {type(optimizer).__name__} with a closure")
            return step(optimizer, closure)
        with enable_grad():
            loss = self.call(closure)()
        self._note_step(optimizer)
        step(optimizer)
        return loss

    def _step_by_functions(self, scheduler: Any, *epoch: Any, **named: Any) -> None:
        """Make a scheduler's step whose functions are watched, since they may have no effects and queue nothing.

        They are called in each call that is left out, so that what they return is no condition.
        """
        functions = scheduler.lr_lambdas
        if type(functions) is not list or not all(map(lasting.changes_nothing, functions)):
            self._notes.refuse(f"what a function of {type(scheduler).__name__} may change")
        self._note_schedule(scheduler, *epoch, **named)
        session = scheduler.optimizer.param_groups[0]["params"][0]._session
        before = len(self._notes.effects), session.operations
        scheduler.lr_lambdas = [lambda *given, one=one: self.call(one, *given)() for one in functions]
        try:
            LRScheduler.step(scheduler, *epoch, **named)
        finally:
            scheduler.lr_lambdas = functions
        if before != (len(self._notes.effects), session.operations):
            self._notes.refuse(f"effects of a function of {type(scheduler).__name__}")

    def _note_average(self, averaged: Any, *models: Any) -> None:
        """Note that one more model is taken into averages: all but the first time the same is done, which counts."""
        notes = self._notes
        if type(averaged) is not AveragedModel or not averaged._count or not lasting.has_fixed_share(averaged):
            notes.refuse(f"an average by {type(averaged).__name__} whose share of a model changes")
            return
        self._note_parts(averaged, ("_averaged", "_number", "update_parameters"))

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        if type(owner) is AveragedModel and name == "_count" and owner._count:
            self._notes.act(lasting.Counted(owner))
            owner._count = value
        else:
            super().set_attribute(value, owner, name)

    def attribute(self, owner: Any, name: str) -> Any:
        if type(owner) is AveragedModel and name == "_count":  # that it is not 0 is asked before each call
            return owner._count
        return super().attribute(owner, name)

    def _note_schedule(self, scheduler: Any, *epoch: Any, **named: Any) -> None:
        """Note that a scheduler goes on to its next rates, which changes groups that were read before."""
        notes, kind = self._notes, type(scheduler)
        is_known = kind in lasting.SCHEDULERS or kind in lasting.BY_FUNCTIONS
        if not is_known or epoch or named or not lasting.queues_nothing(scheduler):
            notes.refuse(f"a step of {kind.__name__}")
            return
        self._note_parts(scheduler, lasting.PARTS)
        optimizer = self.attribute(scheduler, "optimizer")
        groups = self.attribute(optimizer, "param_groups")
        self._contents(groups)
        notes.act(lasting.NextRates(scheduler), vars(scheduler), *groups)

    def _note_parts(self, owner: Any, names: Sequence[str]) -> None:
        """Make it a condition that an object's class has telegrad's own methods under some names, and it no others."""
        notes, kind = self._notes, type(owner)
        notes.conditions.kind(owner)
        for name in names:
            part = getattr(kind, name, None)
            if isinstance(part, FunctionType):
                notes.conditions.attribute(kind, name, part)
                if not purity.is_own(part):
                    notes.refuse(f"{name} of {kind.__name__}, which the program has replaced")
            notes.conditions.no_entry(vars(owner), name)
            if name in vars(owner):
                notes.refuse(f"{name} of a {kind.__name__}, which the program has given it")

    def _note_scaler(self, scaler: Any) -> bool:
        """Note what the methods of a scaler read, which knows of no step between calls; returns whether it scales."""
        notes = self._notes
        if type(scaler) is not GradScaler:
            notes.refuse(f"a call of {type(scaler).__name__}")
            return False
        self._note_parts(scaler, _PARTS)
        for name in _SETTINGS:
            notes.conditions.entry(vars(scaler), name, vars(scaler)[name])
        if not scaler._enabled:
            return False
        for name in _TENSORS:
            self._read(vars(scaler)[name])
            notes.conditions.entry(vars(scaler), name, vars(scaler)[name])
        if id(scaler) not in notes.scalers:
            notes.conditions.content(scaler._progress)
            if scaler._progress or scaler._scale is None:
                notes.refuse("a scaler that has begun before")
            notes.scalers[id(scaler)] = scaler
        return True

    def _note_unscaling(self, scaler: Any, optimizer: Any) -> None:
        """Note that gradients of an optimizer's parameters are looked at and divided by the scale."""
        if self._note_scaler(scaler):
            self._note_parameters(optimizer)

    def _note_parameters(self, optimizer: Any) -> None:
        groups = self.attribute(optimizer, "param_groups")
        self._contents(groups)
        for group in groups:
            params = self.item(group, "params")
            self._contents(params)
            for one in params:
                self._touch(one)

    def _note_scaled_step(self, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Note the step of an optimizer that is skipped on the server where a gradient is infinite."""
        step = self.attribute(optimizer, "step")
        is_known = (
            isinstance(step, MethodType) and step.__self__ is optimizer and step.__func__ is _step_of([optimizer])
        )
        if type(optimizer) not in OPTIMIZERS or not is_known or args or kwargs:
            self._notes.refuse(f"a step of {type(optimizer).__name__} by a scaler")
        elif self._note_scaler(scaler):
            self._note_parameters(optimizer)
            self._note_step(optimizer)
        else:
            self._note_step(optimizer)

    def _note_new_scale(self, scaler: Any, *given: Any, **named: Any) -> None:
        if given or named:
            self._notes.refuse("a scale that is given")
        else:
            self._note_scaler(scaler)

    def _given_to_container(self, owner: Any, name: str, args: Any, kwargs: Any) -> list[Any]:
        is_effect = (
            type(owner) is list and name == "append" and len(args) == 1 and not (kwargs or self._notes.knows(owner))
        )
        if not (is_effect and lasting.may_be_appended(args[0])):
            return super()._given_to_container(owner, name, args, kwargs)
        self._notes.act(lasting.Append(owner, self._seen(args[0])), owner)
        return list(args)


def _step_of(args: Sequence[Any]) -> Any:
    """Return what the class of an optimizer has for a step, where it is one of those that are known."""
    return type(args[0]).step if args and type(args[0]) in OPTIMIZERS else None


_KNOWN: Final[dict[Any, Callable[..., None]]] = {
    LRScheduler.step: Acting._note_schedule, GradScaler.unscale_: Acting._note_unscaling,
    GradScaler.step: Acting._note_scaled_step, GradScaler.update: Acting._note_new_scale,
}  # fmt: skip
