"""State dictionaries: the parameters and buffers of a module and of all below it, by path, saved and loaded.

``_save_to_state_dict`` and ``_load_from_state_dict`` treat one module without those below it, and
may be overridden.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from telegrad._functions.memory.swapping import swap_tensors
from telegrad._ops.operands.asserted_errors import AssertedArgumentError
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.hooks import Hook, Hooks, RemovableHandle
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, StateDictError
from telegrad_protocol.shown_name import shown_name

from ._future_settings import get_swap_module_params_on_conversion
from .parameter import Parameter, is_lazy

_EXTRA = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """The keys that a loaded dictionary lacks, and those that it has and the module lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateDictMixin:
    """The part of ``Module`` that gives and takes state dictionaries."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return parameters and persistent buffers by path, detached unless ``keep_vars``.

        The dictionary's attribute ``_metadata`` has the version of every module by path.
        """
        if args:  # the former positional form
            given = [*args, *(destination, prefix, keep_vars)[len(args) :]]
            destination, prefix, keep_vars = given[0], given[1], given[2]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local)
            if getattr(hook, "_from_public_api", False):
                if replaced is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif replaced is not None:
                destination = replaced
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put the state of this module alone into ``destination``."""
        for name, tensor in _own(self).items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if _overrides(self, "get_extra_state"):
            destination[prefix + _EXTRA] = self.get_extra_state()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copy the tensors of ``state_dict``, or take them over with ``assign``; with ``strict``, keys must match."""
        if not isinstance(state_dict, Mapping):
            raise ArgumentTypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        state, metadata = OrderedDict(state_dict), getattr(state_dict, "_metadata", None)
        if metadata is not None:
            state._metadata = metadata  # type: ignore[attr-defined]
        missing: list[str] = []
        unexpected: list[str] = []
        problems: list[str] = []
        with no_grad():
            _load(self, state, "", metadata, assign, missing, unexpected, problems)
        if strict:
            problems = _key_errors(missing, unexpected) + problems
        if problems:
            listed = "\n\t".join(problems)
            raise StateDictError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take the state of this module alone out of ``state_dict``, and add to the lists what is wrong with it."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = _own(self)
        for name, current in own.items():
            if current is None:
                continue
            if prefix + name in state_dict:
                _load_tensor(self, name, prefix + name, state_dict[prefix + name], assign, error_msgs)
            elif strict:
                missing_keys.append(prefix + name)
        if _overrides(self, "set_extra_state"):
            if prefix + _EXTRA in state_dict:
                self.set_extra_state(state_dict[prefix + _EXTRA])
            elif strict:
                missing_keys.append(prefix + _EXTRA)
        elif strict and prefix + _EXTRA in state_dict:
            unexpected_keys.append(prefix + _EXTRA)
        if strict:
            known = {name for name, tensor in own.items() if tensor is not None}
            unexpected_keys.extend(_unexpected(state_dict, prefix, self._modules, known))

    def get_extra_state(self) -> Any:
        """Return further state to be saved; a subclass that has such state overrides this."""
        raise NotImplementedError("get_extra_state: this module has none")

    def set_extra_state(self, state: Any) -> None:
        """Take back what ``get_extra_state`` returned."""
        raise NotImplementedError("set_extra_state: this module has none")

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` on the state; it may change it in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return RemovableHandle.add(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` on the state; what it returns replaces it."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return RemovableHandle.add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the state of the module is collected."""
        return RemovableHandle.add(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)``
        before the module takes its state."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Hook, with_module: bool = False) -> RemovableHandle:
        """As ``register_load_state_dict_pre_hook``, but without the module among the arguments by default."""
        return RemovableHandle.add(self._load_state_dict_pre_hooks, _LoadHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the lists of keys in place."""
        return RemovableHandle.add(self._load_state_dict_post_hooks, hook)


class _LoadHook:
    """A hook before loading, and the module that is passed to it first, if there is one, but is not kept by it."""

    def __init__(self, hook: Hook, module: Any) -> None:
        self.hook = hook
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, *args: Any) -> None:
        if self.module is None:
            self.hook(*args)
        else:
            self.hook(self.module(), *args)

    def __getstate__(self) -> dict[str, Any]:
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # as it was made, of the copied module


def _own(module: StateDictMixin) -> dict[str, Tensor | None]:
    buffers = {name: b for name, b in module._buffers.items() if name not in module._non_persistent_buffers_set}
    return {**module._parameters, **buffers}


def _overrides(module: StateDictMixin, method: str) -> bool:
    return getattr(type(module), method) is not getattr(StateDictMixin, method)


def _load(
    module: Any, state: Any, prefix: str, metadata: Any, assign: bool, missing: list[str], unexpected: list[str],
    problems: list[str],
) -> None:  # fmt: skip
    """Let a module and all below it take their state."""
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, problems)
    for name, child in module._modules.items():
        if child is None:
            continue
        below = f"{prefix}{name}."
        part = OrderedDict((key, value) for key, value in state.items() if key.startswith(below))
        _load(child, part, below, metadata, assign, missing, unexpected, problems)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, _IncompatibleKeys(missing, unexpected)) is not None:
            raise AssertedArgumentError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )


def _unexpected(state: Any, prefix: str, modules: dict[str, Any], own: set[str]) -> list[str]:
    """Return the keys below ``prefix`` that are neither the module's own nor those of a module below it."""
    keys = []
    for key in state:
        if key.startswith(prefix) and key != prefix + _EXTRA:
            first, dot, _ = key[len(prefix) :].partition(".")
            if first not in modules if dot else first not in own:
                keys.append(key)
    return keys


def _key_errors(missing: list[str], unexpected: list[str]) -> list[str]:
    messages = []
    for what, keys in (("Missing", missing), ("Unexpected", unexpected)):
        if keys:
            listed = ", ".join(f'"{key}"' for key in keys)
            messages.append(f"{what} key(s) in state_dict: {listed}. ")
    return messages


def _load_tensor(module: Any, name: str, key: str, given: Any, assign: bool, problems: list[str]) -> None:
    """Copy or assign one parameter or buffer, or add to ``problems`` why that cannot be done."""
    current = module._parameters.get(name) if name in module._parameters else module._buffers[name]
    if not isinstance(given, Tensor):
        problems.append(
            f'While copying the parameter named "{key}", expected {shown_name("Tensor")} or Tensor-like object from '
            f"checkpoint but received {type(given)}"
        )
        return
    if is_lazy(current) and is_lazy(given):
        return
    if not is_lazy(current) and current.ndim == 0 and tuple(given.shape) == (1,):
        given = given[0]  # checkpoints of PyTorch 0.3 have no scalars
    if current.is_meta and not (given.is_meta or assign):
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
            "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
            "corresponding key in the module instead of copying them in place?)",
            stacklevel=2,
        )
    if not is_lazy(current) and given.shape != current.shape:
        problems.append(
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
            f"the shape in current model is {current.shape}."
        )
    elif get_swap_module_params_on_conversion():
        try:
            _swap(current, given, assign)
        except Exception as error:
            problems.append(f'While copying the parameter named "{key}", an exception occurred : {error.args}.')
    elif assign:
        _assign(module, name, current, given)
    else:
        current.copy_(given)


def _assign(module: Any, name: str, current: Tensor, given: Tensor) -> None:
    if isinstance(current, Parameter):
        is_parameter = isinstance(given, Parameter)
        given = given.requires_grad_(current.requires_grad) if is_parameter else Parameter(given, current.requires_grad)
    setattr(module, name, given)


def _swap(current: Tensor, given: Tensor, assign: bool) -> None:
    """Swap a parameter or buffer with what ``module_load`` makes of the tensor given for it."""
    loaded = current.module_load(given, assign=assign)
    if loaded is given or loaded is current:
        raise RuntimeError("module_load returned one of its arguments; return a detach() of it")
    if isinstance(current, Parameter):
        is_parameter = isinstance(loaded, Parameter)
        wanted = current.requires_grad
        loaded = loaded.requires_grad_(wanted) if is_parameter else Parameter(loaded, wanted)
    swap_tensors(current, loaded)
