"""``Optimizer``: parameter groups, state, and their dictionaries.

A step is one instruction per parameter group and device, and never waits. Knows nothing of particular algorithms.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import wraps
from typing import Any, ClassVar

from telegrad._functions.gradients import by_device, clear_gradients
from telegrad._ops.operand_classes import HANDLERS
from telegrad._session.grad_mode import enable_grad, no_grad, set_grad_enabled
from telegrad._session.labelling import LABELLED, Labelled
from telegrad._session.parts import capturing
from telegrad._tensor.hooks import Hooks, RemovableHandle
from telegrad._tensor.number_checks import is_number
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.meta import Device

from ._lists import copied, names_of, rounds
from ._own_optimizers import DeviceDict as DeviceDict
from ._own_optimizers import DeviceDtypeDict as DeviceDtypeDict
from ._own_optimizers import StateDict as StateDict
from ._own_optimizers import _capturable_doc as _capturable_doc
from ._own_optimizers import _default_to_fused_or_foreach as _default_to_fused_or_foreach
from ._own_optimizers import _device_dtype_check_for_fused as _device_dtype_check_for_fused
from ._own_optimizers import _differentiable_doc as _differentiable_doc
from ._own_optimizers import _disable_dynamo_if_unsupported as _disable_dynamo_if_unsupported
from ._own_optimizers import _foreach_doc as _foreach_doc
from ._own_optimizers import _fused_doc as _fused_doc
from ._own_optimizers import _get_capturable_supported_devices as _get_capturable_supported_devices
from ._own_optimizers import _get_scalar_dtype as _get_scalar_dtype
from ._own_optimizers import _get_value as _get_value
from ._own_optimizers import _maximize_doc as _maximize_doc
from ._own_optimizers import _params_doc as _params_doc
from ._own_optimizers import _stack_if_compiling as _stack_if_compiling
from ._own_optimizers import _view_as_real as _view_as_real
from ._states.placed import check_capturable

Group = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]
ParamsT = Parameters


class _RequiredParameter:
    """Stands for a setting without a default in optimizers of other people."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()
_HOOKED = ("step", "state_dict", "load_state_dict")
_HOOKS = tuple([f"_optimizer_{name}_{when}_hooks" for name in _HOOKED for when in ("pre", "post")])
EVERYONES_BEFORE: Hooks = OrderedDict()
EVERYONES_AFTER: Hooks = OrderedDict()
ADDED: Group = {
    "amsgrad": False, "capturable": False, "centered": False, "decoupled_weight_decay": False, "differentiable": False,
    "foreach": None, "fused": None, "maximize": False, "momentum": 0, "nesterov": False,
}  # fmt: skip
"""Settings that state dictionaries of an older PyTorch lack, and what its optimizers did without them."""
_ACCEPTED = ("foreach", "capturable", "differentiable", "fused")


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of all optimizers."""
    return RemovableHandle.add(EVERYONES_BEFORE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of all optimizers."""
    return RemovableHandle.add(EVERYONES_AFTER, hook)


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``step`` with the hooks of the optimizer, and of all optimizers, around it."""
    if getattr(step, "hooked", False):
        return step

    @wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if "_optimizer_step_pre_hooks" not in self.__dict__:  # a class around another optimizer, which has the hooks
            return step(self, *args, **kwargs)
        for pre_hook in (*EVERYONES_BEFORE.values(), *self._optimizer_step_pre_hooks.values()):
            replaced = pre_hook(self, (self, *args), kwargs)
            if replaced is None:
                continue
            if not isinstance(replaced, tuple) or len(replaced) != 2:
                raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {replaced}.")
            (_, *args), kwargs = replaced
        result = step(self, *args, **kwargs)
        if not self._has_stepped:
            self._has_stepped = True
        for post_hook in (*self._optimizer_step_post_hooks.values(), *EVERYONES_AFTER.values()):
            post_hook(self, (self, *args), kwargs)
        return result

    run.hooked = True  # type: ignore[attr-defined]
    return run


class Optimizer:
    """Base of all optimizers: ``param_groups`` holds settings, may change between steps; ``state`` is by parameter."""

    _step_supports_amp_scaling = False
    grad_scale: Tensor | None = None
    """What a step divides gradients by; ``amp.GradScaler`` sets it around a step of optimizers that support it."""
    found_inf: Tensor | None = None
    """Where this is not zero, a step changes nothing."""

    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks

    def __init__(self, params: Parameters, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{params.type()}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._make_hooks()
        given = list(params)
        if not given:
            raise ArgumentError("optimizer got an empty parameter list")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)  # type: ignore[arg-type]

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with settings of their own: the dictionary itself, completed by defaults, as PyTorch does."""
        if not isinstance(param_group, dict):
            raise ArgumentTypeError(f"param_group must be a dict, but got {type(param_group)}")
        group, params = param_group, param_group["params"]
        if isinstance(params, set):
            raise ArgumentTypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        listed = [params] if isinstance(params, Tensor) else list(params)
        named = [isinstance(item, tuple) for item in listed]
        if any(named) and not all(named):
            raise ArgumentError("all optimizer params should be with/without names. Some param names are missing")
        if any(named):
            group["param_names"] = [name for name, _ in listed]
            listed = [parameter for _, parameter in listed]
        group["params"] = listed
        self._check_parameters(listed)
        if any(("param_names" in other) != ("param_names" in group) for other in self.param_groups):
            raise ArgumentError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in group else 'without'} names to the optimizer"
            )
        for name, value in self.defaults.items():
            if value is required and name not in group:
                raise ArgumentError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, value)
        self.param_groups.append(group)

    def _check_parameters(self, params: list[Any]) -> None:
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise ArgumentTypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(parameter).__name__}"
                )
            if not (self.defaults.get("differentiable") or parameter.is_leaf or parameter.retains_grad):
                raise ArgumentError(f"can't optimize a non-leaf Tensor: {parameter._meta}")
        present = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        if len({id(parameter) for parameter in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters, which a step updates as often",
                stacklevel=5,
            )
            self._repeats = True
        if any(id(parameter) in present for parameter in params):
            raise ArgumentError("some parameters appear in more than one parameter group")

    _has_stepped = False
    """Whether ``step`` was called; schedulers warn where they are stepped before."""
    _step_of_schedules: Callable[..., Any] | None = None
    """The function that ``step`` was when a scheduler was made; schedulers warn where it has become another."""
    _repeats = False
    """Whether a group names a parameter more than once."""
    _added_settings: ClassVar[Group] = {}
    """What is set in groups of a state dictionary that lack it, since an older PyTorch wrote them."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zero."""
        for group in self.param_groups:
            clear_gradients(group["params"], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have gradients; ``closure`` computes them, and the loss that is given back."""
        if type(self)._update is Optimizer._update:
            raise NotImplementedError(f"{type(self).__name__} defines no step()")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if capturing.active.graph is not None:
            check_capturable(type(self).__name__, self.param_groups)
        for group in self.param_groups:
            with_grad = [parameter for parameter in group["params"] if parameter._grad is not None]
            if HANDLERS:
                with_grad = self._without_sparse(group, with_grad)
            for distinct in rounds(with_grad) if self._repeats else (with_grad,):
                for params in by_device(distinct):
                    self._update(group, params, [parameter._grad for parameter in params])
        return loss

    def __init_subclass__(cls) -> None:
        """Let the hooks of a step run around a subclass's own ``step``."""
        if "step" in cls.__dict__:
            cls.step = with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    profile_hook_step = staticmethod(with_hooks)

    def _patch_step_function(self) -> None:
        """Let hooks run around the class's ``step``; classes around other optimizers call this, as PyTorch's do."""
        cls = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{cls.__name__}.zero_grad"
        cls.step = with_hooks(cls.step)  # type: ignore[method-assign]

    def _without_sparse(self, group: Group, params: list[Tensor]) -> list[Tensor]:
        """Update those parameters that have sparse gradients, and return the others."""
        dense = []
        for parameter in params:
            if parameter._grad.__class__ in HANDLERS:
                with no_grad():
                    self._update_sparse(group, parameter, parameter._grad)
            else:
                dense.append(parameter)
        return dense

    def _update_sparse(self, group: Group, parameter: Tensor, grad: Any) -> None:
        """Change one parameter by a sparse gradient."""
        raise NotSupportedError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead; SGD and "
            "Adagrad take them, too"
        )

    def _update(self, group: Group, params: list[Tensor], grads: list[Any]) -> None:
        """Change parameters of one group and device by their gradients."""
        raise NotImplementedError

    def _scaling(self, device: Device) -> dict[str, Tensor | None]:
        """``grad_scale`` and ``found_inf`` as arguments of a fused step, where the parameters are."""
        scaling = {"grad_scale": self.grad_scale, "found_inf": self.found_inf}
        if self.grad_scale is None and self.found_inf is None:
            return scaling
        return {name: None if tensor is None else tensor.to(device) for name, tensor in scaling.items()}

    def _numbered(self) -> dict[int, int]:
        params = [parameter for group in self.param_groups for parameter in group["params"]]
        return {id(parameter): number for number, parameter in reversed([*enumerate(params)])}  # the first place counts

    def state_dict(self) -> dict[str, Any]:
        """State and settings, with parameters by number."""
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        numbers = self._numbered()
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers.get(id(p), p): self._packed(entry) for p, entry in self.state.items()}
        packed: dict[str, Any] = {"state": state, "param_groups": groups}
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            replaced = post_hook(self, packed)
            packed = packed if replaced is None else replaced
        return packed

    def _packed(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a parameter as it stands in a state dictionary."""
        return dict(entry)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave; copies what it holds."""
        state_dict = dict(state_dict)
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = pre_hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        groups, saved = self.param_groups, state_dict["param_groups"]
        if len(groups) != len(saved):
            raise ArgumentError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ArgumentError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = [p for group in groups for p in group["params"]]
        by_number = dict(zip([n for s in saved for n in s["params"]], params, strict=True))
        loaded = {
            by_number.get(n, n): copied(entry, by_number[n]) if n in by_number else entry
            for n, entry in state_dict["state"].items()
        }
        settings = [
            {**names_of(g), **deepcopy({k: v for k, v in s.items() if k != "params"}), "params": g["params"]}
            for g, s in zip(groups, saved, strict=True)
        ]
        self.__setstate__({"state": defaultdict(dict, loaded), "param_groups": settings})
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before every step; it may return other arguments, as a pair."""
        return RemovableHandle.add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after every step."""
        return RemovableHandle.add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before the state is collected."""
        return RemovableHandle.add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` on the state; what it returns replaces the state."""
        return RemovableHandle.add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; what it returns is loaded instead."""
        return RemovableHandle.add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return RemovableHandle.add(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name in self._added_settings.keys() & self.defaults.keys() - group.keys():
                group[name] = self._added_settings[name]

    def _make_hooks(self) -> None:
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            shown = sorted(group.keys() - {"params"})
            lines += [f"Parameter Group {number}", *(f"    {key}: {group[key]}" for key in shown), ""]
        return "\n".join(lines) + ")"


def check_at_least(name: str, value: Any, low: float = 0.0) -> None:
    """Refuse a setting that is no number, or below ``low``."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            label = "lr" if name == "learning rate" else name
            raise ArgumentError(f"Tensor {label} must be 1-element, got {value._meta}")
        return
    if not is_number(value):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r}")
    if not low <= value:
        raise ArgumentError(f"Invalid {name}{'' if name == 'learning rate' else ' value'}: {value}")


def accepted_flags(**flags: Any) -> dict[str, Any]:
    """Settings of PyTorch that choose among its implementations; every step is fused here that is not recorded."""
    if flags.get("fused") and flags.get("foreach"):
        raise ArgumentError("`fused` and `foreach` cannot be `True` together")
    if flags.get("fused") and flags.get("differentiable"):
        raise RuntimeError("`fused` does not support `differentiable`")
    return {name: flags.get(name) for name in _ACCEPTED if name in flags}


def lr_at(lr: float | Tensor, device: Device) -> float | Tensor:
    """Return a learning rate that a step on ``device`` can read: a tensor there or on the CPU, or the number."""
    return lr.to(device) if isinstance(lr, Tensor) and lr.is_cuda else lr


Optimizer.step = with_hooks(Optimizer.step)  # type: ignore[method-assign]
LABELLED.append(Labelled(Optimizer, "step", register_optimizer_step_pre_hook, register_optimizer_step_post_hook))


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``step`` that records gradients if the optimizer is ``differentiable``, and only then."""

    @wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return step(self, *args, **kwargs)

    return run
