"""Weight normalization by a hook before ``forward``, the former way."""

from __future__ import annotations

import warnings
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter, require_shape
from telegrad_protocol.layout import wrap_dim


def norm_except(weight: Tensor, dim: int) -> Tensor:
    """Return the norms over all dimensions but ``dim``, over all for -1, in a shape that broadcasts."""
    if dim == -1:
        return weight.norm(2)
    kept = wrap_dim("norm_except_dim", dim, weight.ndim)
    others = [d for d in range(weight.ndim) if d != kept]
    return weight.norm(2, others, True) if others else weight.abs()


def weight_of(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """Return the weight of direction ``v`` and length ``g``."""
    return v * (g / norm_except(v, dim))


class WeightNorm:
    """The hook: it computes the weight of ``<name>_g`` and ``<name>_v``."""

    def __init__(self, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim

    def compute_weight(self, module: Module) -> Tensor:
        """Return the weight."""
        return weight_of(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Make a weight of a length ``<name>_g``, which keeps ``dim``, and a direction ``<name>_v``, before every call."""
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    made = WeightNorm(name, -1 if dim is None else dim)
    weight = getattr(module, name)
    require_shape(weight, "WeightNorm", "weight normalization")
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(norm_except(weight.detach(), made.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, made.compute_weight(module))
    module.register_forward_pre_hook(made)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight a parameter again."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module)
            delattr(module, name)
            del module._parameters[f"{name}_g"], module._parameters[f"{name}_v"]
            setattr(module, name, Parameter(weight.detach()))
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
