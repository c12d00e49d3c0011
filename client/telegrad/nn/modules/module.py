"""``Module``: the base of everything that has parameters.

A module finds its parameters, buffers and submodules by the attributes they are assigned to. Walks over what it has are
in ``nn._traversal``, state dictionaries in ``nn._state_dict``, moves and casts in ``nn._conversions``, and hooks in
``nn._hooks``. Knows nothing of particular layers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

from telegrad._functions.gradients import clear_gradients
from telegrad._functions.process_settings import typename
from telegrad._tensor.tensor import Tensor
from telegrad.nn._backward_hooks import BackwardHooksMixin
from telegrad.nn._backward_hooks import register_module_backward_hook as register_module_backward_hook
from telegrad.nn._backward_hooks import register_module_full_backward_hook as register_module_full_backward_hook
from telegrad.nn._backward_hooks import register_module_full_backward_pre_hook as register_module_full_backward_pre_hook
from telegrad.nn._builtins import is_builtin
from telegrad.nn._conversions import ConversionsMixin
from telegrad.nn._hooks import GLOBAL, HooksMixin, call_with_hooks
from telegrad.nn._hooks import register_module_buffer_registration_hook as register_module_buffer_registration_hook
from telegrad.nn._hooks import register_module_forward_hook as register_module_forward_hook
from telegrad.nn._hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
from telegrad.nn._hooks import register_module_module_registration_hook as register_module_module_registration_hook
from telegrad.nn._hooks import (
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)
from telegrad.nn._repr import described, indent
from telegrad.nn._state_dict import StateDictMixin
from telegrad.nn._state_dict import _IncompatibleKeys as _IncompatibleKeys
from telegrad.nn._traversal import TraversalMixin
from telegrad.nn.parameter import Buffer, Parameter
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.shown_name import shown_name

_global_forward_hooks, _global_forward_pre_hooks = GLOBAL.after, GLOBAL.before
_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called = GLOBAL.with_kwargs, GLOBAL.always_called
_global_backward_hooks, _global_backward_pre_hooks = GLOBAL.around[2:]
_global_parameter_registration_hooks = GLOBAL.on_parameter
_global_buffer_registration_hooks = GLOBAL.on_buffer
_global_module_registration_hooks = GLOBAL.on_module

__all__ = ["Module"]


M = TypeVar("M", bound="Module")
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


def _addindent(s_: str, numSpaces: int) -> str:
    return s_.replace("\n", "\n" + " " * numSpaces)


_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_AROUND_CALLS: Final = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
"""Where the hooks are that are called when the module is, or in the backward pass through it."""


class Module(TraversalMixin, StateDictMixin, ConversionsMixin, HooksMixin, BackwardHooksMixin):
    """Base of layers and models, which assign parameters and submodules in ``__init__`` and define ``forward``.

    The attribute ``training`` tells whether the module is being trained.
    """

    training: bool
    dump_patches: bool = False
    __constants__: list[str] = []
    call_super_init: bool = False
    """Whether ``__init__`` calls that of the class that follows ``Module``, with all arguments."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep functions such as ``torch.conv2d``, which are attributes of the class, from being its methods."""
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if is_builtin(value):
                setattr(cls, name, staticmethod(value))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            problem = f"takes 1 positional argument but {len(args) + 1} were given"
            problem = f"got an unexpected keyword argument '{next(iter(kwargs))}'" if kwargs else problem
            raise ArgumentTypeError(f"{type(self).__name__}.__init__() {problem}")
        state = self.__dict__
        state["training"] = True
        state["_has_hooks"] = False
        state["_is_full_backward_hook"] = None
        state["_non_persistent_buffers_set"] = set()
        for name in _REGISTRIES:
            state[name] = {}
        for name in _HOOKS:
            state[name] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output of the module; calling the module calls this."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._has_hooks or GLOBAL.any:
            return self._call_with_backward_hooks(call_with_hooks, args, kwargs)
        if len(args) == 1 and not kwargs:  # the usual call, which takes half the time when it is written out
            return self.forward(args[0])
        return self.forward(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that copies and files have: a copy calls its own ``forward``, which is not compiled."""
        state = self.__dict__.copy()
        compiled = state.pop("_compiled_call_impl", None)
        if compiled is not None and state.get("forward") is compiled:
            original = getattr(compiled, "_torchdynamo_orig_callable", compiled)
            if getattr(original, "__self__", None) is self:
                del state["forward"]
            else:
                state["forward"] = original
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy; one of an older version may lack kinds of hooks, which it has none of then.

        One of PyTorch's own lacks what tells that it has hooks at all.
        """
        self.__dict__.update(state)
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_is_full_backward_hook", None)
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_has_hooks", any([self.__dict__[name] for name in _AROUND_CALLS]))

    def _replicate_for_data_parallel(self) -> Any:
        """Return an object like this one with registries of its own, for ``DataParallel``; a class may keep more apart.

        It has the same buffers and submodules, and no parameters: those of the copy's device are entered afterwards.
        """
        replica = object.__new__(type(self))
        replica.__dict__.update(self.__dict__)
        copies = {"_buffers": dict(self._buffers), "_modules": dict(self._modules)}
        replica.__dict__.update(_parameters={}, _is_replica=True, **copies)
        return replica

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._drop_name(name, "parameters")
            self.register_parameter(name, value)
        elif value is not None and name in (self.__dict__.get("_parameters") or ()):
            self._replace(name, value)
        elif isinstance(value, Module):
            registered = GLOBAL.registered(GLOBAL.on_module, self, name, value)
            self._take(name, self._registry("_modules", "module"), registered)
        elif isinstance(value, Buffer):
            self._drop_name(name, "buffers")
            self.register_buffer(name, value, value.persistent)
        elif not self._replace(name, value):
            object.__setattr__(self, name, value)

    def _drop_name(self, name: str, kind: str) -> None:
        """Remove a name from the attributes, and from the registries other than that of this kind."""
        registry = self._registry(f"_{kind}", kind if kind == "parameters" else "buffer")
        self.__dict__.pop(name, None)
        for other in _REGISTRIES:
            if self.__dict__[other] is not registry:
                self.__dict__[other].pop(name, None)

    def _registry(self, registry: str, what: str) -> dict[str, Any]:
        entries: dict[str, Any] | None = self.__dict__.get(registry)
        if entries is None:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        return entries

    def _replace(self, name: str, value: Any) -> bool:
        """Assign to a name that is a parameter, module or buffer already; return False if it is none."""
        for registry, wanted in (("_parameters", "nn.Parameter"), ("_modules", "nn.Module")):
            entries = self.__dict__.get(registry)
            if entries is not None and name in entries:
                if value is not None:
                    what = registry[1:-1].replace("modules", "module")
                    raise ArgumentTypeError(
                        f"cannot assign '{typename(value)}' as {described(what)} '{name}' "
                        f"({shown_name(wanted)} or None expected)"
                    )
                entries[name] = None
                return True
        buffers = self.__dict__.get("_buffers")
        if buffers is None or name not in buffers:
            return False
        if value is not None and not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' ({shown_name('Tensor')} or None expected)"
            )
        buffers[name] = GLOBAL.registered(GLOBAL.on_buffer, self, name, value)
        return True

    def _take(self, name: str, registry: dict[str, Any], value: Any) -> None:
        """Make ``value`` the entry ``name`` of one registry, and remove that name from everywhere else."""
        self.__dict__.pop(name, None)
        for other in _REGISTRIES:
            entries = self.__dict__[other]
            if entries is not registry:
                entries.pop(name, None)
        self._non_persistent_buffers_set.discard(name)
        registry[name] = value

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        if "_modules" in state:  # written out, since models look up all their layers and parameters here
            if name in (entries := state["_parameters"]):
                return entries[name]
            if name in (entries := state["_buffers"]):
                return entries[name]
            if name in (entries := state["_modules"]):
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for registry in _REGISTRIES:
            if name in self.__dict__[registry]:
                del self.__dict__[registry][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for registry in _REGISTRIES for name in self.__dict__[registry])})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None keeps the name without one."""
        registry = self._registry("_parameters", "parameters")
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentTypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(telegrad.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"cannot assign non-leaf Tensor to parameter '{name}'")
        self._check_name(name, registry)
        self._take(name, registry, GLOBAL.registered(GLOBAL.on_parameter, self, name, param))

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not trained; left out of ``state_dict`` if not ``persistent``."""
        registry = self._registry("_buffers", "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentTypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (telegrad.Tensor or None required)"
            )
        self._check_name(name, registry)
        registry[name] = GLOBAL.registered(GLOBAL.on_buffer, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule; None keeps the name without one."""
        registry = self._registry("_modules", "module")
        if module is not None and not isinstance(module, Module):
            raise ArgumentTypeError(f"{typename(module)} is not a Module subclass")
        self._check_name(name, registry)
        registry[name] = GLOBAL.registered(GLOBAL.on_module, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule, as ``add_module`` does."""
        self.add_module(name, module)

    def _check_name(self, name: str, registry: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"name should be a string, got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'name can\'t contain ".", got: {name}')
        if not name:
            raise KeyError('name can\'t be empty string ""')
        if hasattr(self, name) and name not in registry:
            raise KeyError(f"attribute '{name}' already exists")

    def train(self: M, mode: bool = True) -> M:
        """Switch layers such as dropout to training, or to evaluation."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        """Switch layers such as dropout to evaluation."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Let gradients flow into all parameters, or into none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zero."""
        clear_gradients(list(self.parameters()), set_to_none)

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call ``fn`` on every module below and on this one, the deepest first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Send what ``forward`` queues as programs from now on, as ``torch.compile`` does; the module stays itself."""
        compiled = import_module("telegrad.compiler").compile(self.forward, *args, **kwargs)
        self.__dict__["forward"] = self.__dict__["_compiled_call_impl"] = compiled

    def extra_repr(self) -> str:
        """Return what ``repr`` shows between the brackets."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indent(repr(module))}" for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"
