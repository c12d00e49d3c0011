"""Pruning: a mask that zeroes some elements of a parameter before every call.

The parameter ``<name>`` becomes ``<name>_orig`` and the mask a buffer ``<name>_mask``; ``remove`` makes the pruned
tensor the parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.number_checks import is_integer, is_number
from telegrad._tensor.tensor import Tensor

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """Base of methods, which define ``compute_mask``; ``PRUNING_TYPE`` says what of a pruned tensor they look at."""

    _tensor_name: str
    PRUNING_TYPE: str = "unstructured"

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask of a tensor, zero where ``default_mask`` is."""

    def apply_mask(self, module: Any) -> Tensor:
        """Return the parameter times its mask."""
        mask, original = getattr(module, f"{self._tensor_name}_mask"), getattr(module, f"{self._tensor_name}_orig")
        return mask.to(original.dtype) * original  # type: ignore[no-any-return]

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prune a parameter of a module, in addition to what was pruned before."""
        former = [
            (number, hook)
            for number, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if former:
            number, old = former[0]
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            del module._forward_pre_hooks[number]
            method = container
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter                 {name} of {module}"
            )
        scores = original if importance_scores is None else importance_scores
        if not isinstance(method, PruningContainer):
            parameter = module._parameters[name]
            module.register_parameter(f"{name}_orig", parameter)
            del module._parameters[name]
            default = function("ones_like")(parameter.detach())
        else:
            default = getattr(module, f"{name}_mask").detach().clone()
        module.register_buffer(f"{name}_mask", method.compute_mask(scores.detach(), default))
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Return the tensor pruned."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        default = function("ones_like")(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, default)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor the parameter."""
        name = self._tensor_name
        pruned, original = self.apply_mask(module), module._parameters[f"{name}_orig"]
        if hasattr(module, name):
            delattr(module, name)
        original.data = pruned.detach()
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that are applied one after the other, each to what those before have left."""

    def __init__(self, *args: Any) -> None:
        listed = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        methods = list(listed)
        if methods:
            self._tensor_name = methods[0]._tensor_name
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method for the same tensor."""
        if method is None:
            return
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods = (*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            kept = mask.flatten().nonzero().reshape(-1)
            own = method.compute_mask(t.flatten().index_select(0, kept), mask.flatten().index_select(0, kept))
            return mask.flatten().index_copy(0, kept, own.to(mask.dtype)).reshape(mask.shape)
        if method.PRUNING_TYPE == "global":
            return mask * method.compute_mask(t, default_mask).to(mask.dtype)
        if method.PRUNING_TYPE != "structured":
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        dim = method.dim % t.ndim  # type: ignore[attr-defined]
        others = [d for d in range(t.ndim) if d != dim]
        kept = (mask.sum(others) != 0).nonzero().reshape(-1)
        own = method.compute_mask(t.index_select(dim, kept), mask.index_select(dim, kept))
        return mask.index_copy(dim, kept, own.to(mask.dtype))


class Identity(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """Give a parameter a mask of ones."""
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """A method that prunes ``amount`` elements: a number of them, or a share."""

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount


def _check_amount(amount: Any) -> None:
    if not is_number(amount):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not is_integer(amount) and amount > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: Any, size: int) -> int:
    """Return how many of ``size`` are pruned."""
    count = int(amount) if is_integer(amount) else round(amount * size)
    if count > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return count


def _zeroed(mask: Tensor, positions: Tensor) -> Tensor:
    """Return the mask with zeros at positions among its elements."""
    return mask.clone().reshape(-1).index_fill(0, positions, 0).reshape(mask.shape)


class RandomUnstructured(_Amount):
    """Prunes elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        chosen = function("rand")(t.numel(), device=t.device).topk(count)[1]
        return _zeroed(default_mask, chosen) if count else default_mask.clone()

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """Prune elements of a parameter at random."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Amount):
    """Prunes the elements of the least magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        return _zeroed(default_mask, t.abs().reshape(-1).topk(count, largest=False)[1])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, importance_scores: Tensor | None = None) -> Any:  # type: ignore[override]
        """Prune the elements of a parameter that have the least magnitude, or the least score."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(BasePruningMethod):
    """A method that prunes whole slices along ``dim``."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        """Return a score for every slice, of which the least are pruned."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        dim = self.dim % t.ndim
        count = _count(self.amount, t.shape[dim])
        if not count:
            return default_mask
        pruned = self._scores(t).topk(count, largest=False)[1]
        return default_mask.clone().index_fill(dim, pruned, 0)


class RandomStructured(_Structured):
    """Prunes slices at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return function("rand")(t.shape[self.dim], device=t.device)  # type: ignore[no-any-return]

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> Any:  # type: ignore[override]
        """Prune slices of a parameter at random."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the slices of the least n-norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        return t.norm(self.n, [d for d in range(t.ndim) if d != self.dim % t.ndim])

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> Any:
        """Prune the slices of a parameter that have the least norm."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        """Prune a parameter where a mask is zero."""
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Give a parameter a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune elements of a parameter at random; ``amount`` is their number, or their share."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Tensor | None = None) -> Any:
    """Prune the elements of a parameter that have the least magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune slices of a parameter along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prune the slices of a parameter along ``dim`` that have the least n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune a parameter where a mask is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prune several parameters, pairs of module and name, as if they were one vector."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, (dict, type(None))):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs, scores = list(parameters), importance_scores or {}
    vectors = [scores.get(pair, getattr(*pair)).detach().reshape(-1) for pair in pairs]
    masks = [_mask_of(*pair) for pair in pairs]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of '
            f"type {method.PRUNING_TYPE}"
        )
    final = container.compute_mask(function("cat")(vectors), function("cat")([mask.reshape(-1) for mask in masks]))
    start = 0
    for (module, name), mask in zip(pairs, masks, strict=True):
        custom_from_mask(module, name, final[start : start + mask.numel()].view(mask.shape))
        start += mask.numel()


def _mask_of(module: Any, name: str) -> Tensor:
    mask: Tensor | None = getattr(module, f"{name}_mask", None)
    return function("ones_like")(getattr(module, name).detach()) if mask is None else mask


def remove(module: Any, name: str) -> Any:
    """Make a pruned tensor a parameter again, for good."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Tell whether a parameter of the module, or of one below it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
