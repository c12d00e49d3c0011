"""Calls of a module with other tensors in the place of its parameters and buffers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import AutogradError

__all__ = ["functional_call"]


def functional_call(
    module: Module, parameters_and_buffers: Mapping[str, Tensor], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """The former place of ``func.functional_call``."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


def call_with(
    module: Module, parameters_and_buffers: Mapping[str, Tensor], args: Any, kwargs: dict[str, Any] | None,
    tie_weights: bool, strict: bool,
) -> Any:  # fmt: skip
    """Call the module with tensors by path in the place of its own, which it has again afterwards.

    With ``tie_weights`` a tensor also takes the place of its other names; with ``strict`` all must be replaced, and no
    others given, which are attributes for the time of the call.
    """
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*given, **(kwargs or {}))


def _own(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Return where every parameter and buffer is kept, by path: a registry and a name in it."""
    places = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for registry in (part._parameters, part._buffers):
            for name, tensor in registry.items():
                if tensor is not None:
                    places[f"{path}.{name}" if path else name] = (registry, name)
    return places


@contextmanager
def _reparametrize_module(
    module: Module, tensors: Mapping[str, Tensor], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """Give the module these tensors in the place of its own, by path, within a block; packages use this, too.

    What the module has put in their place at the end of the block is put into ``tensors``, where that can be changed.
    """
    places = _own(module)
    chosen = dict(tensors)
    if tie_weights:
        chosen = _with_tied(places, chosen)
    unexpected, missing = [k for k in chosen if k not in places], [k for k in places if k not in chosen]
    if strict and (unexpected or missing):
        listed = (("Unexpected", unexpected), ("Missing", sorted(missing)))
        problems = [f"{what} key(s): {', '.join(map(repr, keys))}." for what, keys in listed if keys]
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    places |= {key: _attribute(module, key) for key in unexpected}
    before = {key: places[key][0].get(places[key][1]) for key in chosen}
    try:
        for key, tensor in chosen.items():
            registry, name = places[key]
            registry[name] = tensor
        yield
    finally:
        if isinstance(tensors, MutableMapping):
            tensors.update(
                {key: registry[name] for key in tensors for registry, name in [places[key]] if name in registry}
            )
        for key, own in before.items():
            registry, name = places[key]
            if own is None:
                registry.pop(name, None)
            else:
                registry[name] = own


def _attribute(module: Module, key: str) -> tuple[dict[str, Any], str]:
    """Return where a tensor is kept that is no parameter or buffer: among the attributes of a module that is there."""
    *path, name = key.split(".")
    part: Any = module
    for step in path:
        if not isinstance(getattr(part, step, None), Module):
            raise AttributeError(f"{type(part).__name__} has no attribute `{step}`")
        part = getattr(part, step)
    if hasattr(type(part), name):
        raise AutogradError(
            f"functional_call: `{key}` is no tensor of the module, which computes it; give what it is computed of"
        )
    if not isinstance(getattr(part, name, None), (Tensor, type(None))):
        raise TypeError(f"{key} is not an instance of torch.Tensor")
    return part.__dict__, name


def _with_tied(places: Mapping[str, Any], chosen: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under the other names of what they replace, too."""
    by_tensor: dict[int, list[str]] = {}
    for key, (registry, name) in places.items():
        by_tensor.setdefault(id(registry[name]), []).append(key)
    tied = dict(chosen)
    for keys in by_tensor.values():
        replacements = {id(chosen[key]): chosen[key] for key in keys if key in chosen}
        if len(replacements) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(keys)}, which are tied. "
                "Consider using tie_weights=False"
            )
        for key in keys if replacements else ():
            tied[key] = next(iter(replacements.values()))
    return tied
