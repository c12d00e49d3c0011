"""The package ``functorch``, which comes with PyTorch: transforms of functions, and modules apart from their state."""

from __future__ import annotations

import copy as _copy
import warnings as _warnings
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function as _function
from telegrad._tensor.tensor import Tensor
from telegrad.func import functional_call as _functional_call
from telegrad.func import grad as grad
from telegrad.func import grad_and_value as grad_and_value
from telegrad.func import hessian as hessian
from telegrad.func import jacfwd as jacfwd
from telegrad.func import jacrev as jacrev
from telegrad.func import jvp as jvp
from telegrad.func import vjp as vjp
from telegrad.func import vmap as vmap
from telegrad.fx.experimental.proxy_tensor import make_fx as make_fx
from telegrad.nn import Module
from telegrad_protocol.errors import ArgumentError


class FunctionalModule(Module):
    """A module that is called with its parameters, as ``make_functional`` makes it."""

    def __init__(self, stateless_model: Module) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names = tuple([name for name, _ in stateless_model.named_parameters()])
        self.buffer_names = tuple([name for name, _ in stateless_model.named_buffers()])

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return _functional_call(self.stateless_model, self._named(self.param_names, params), args, kwargs)

    @staticmethod
    def _named(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        if len(names) != len(tensors):
            raise ArgumentError(f"functorch: the module has {len(names)} of these tensors, and got {len(tensors)}")
        return dict(zip(names, tensors, strict=True))


class FunctionalModuleWithBuffers(FunctionalModule):
    """One that is called with its buffers, too."""

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        state = self._named(self.param_names, params) | self._named(self.buffer_names, buffers)
        return _functional_call(self.stateless_model, state, args, kwargs)


def _warn(name: str, instead: str) -> None:
    _warnings.warn(f"functorch.{name} is deprecated as of PyTorch 2.0; use {instead}", FutureWarning, stacklevel=3)


def _apart(model: Module, disable_autograd_tracking: bool) -> tuple[Module, tuple[Tensor, ...]]:
    """Return a copy of a module, and the copy's parameters."""
    copied = _copy.deepcopy(model)
    if disable_autograd_tracking:
        copied.requires_grad_(False)
    return copied, tuple(copied.parameters())


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """Return a module that is called with its parameters first, and a copy of these."""
    _warn("make_functional", "torch.func.functional_call")
    if any(True for _ in model.buffers()):
        raise ArgumentError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    copied, params = _apart(model, disable_autograd_tracking)
    return FunctionalModule(copied), params


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return a module that is called with its parameters and buffers first, and copies of these."""
    _warn("make_functional_with_buffers", "torch.func.functional_call")
    copied, params = _apart(model, disable_autograd_tracking)
    return FunctionalModuleWithBuffers(copied), params, tuple(copied.buffers())


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return one module for all models, their parameters, and their buffers, stacked along a new first dimension."""
    _warn("combine_state_for_ensemble", "torch.func.stack_module_state")
    if not models:
        raise ArgumentError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise ArgumentError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len(set(map(type, models))) > 1:
        raise ArgumentError("combine_state_for_ensemble: Expected all models to be of the same class.")
    stack = _function("stack")
    params, buffers = (
        tuple([stack(alike).detach() for alike in zip(*map(list, listed), strict=True)])
        for listed in ([model.parameters() for model in models], [model.buffers() for model in models])
    )
    return FunctionalModuleWithBuffers(_copy.deepcopy(models[0])), params, buffers
