"""``Module``: the base of everything that has parameters.

A module finds its parameters, buffers and submodules by the attributes they are assigned to. State dictionaries are in
``nn._state_dict``. Knows nothing of particular layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from telegrad._functions.gradients import clear_gradients
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.nn._conversions import convert, destination, in_format
from telegrad.nn._hooks import RemovableHandle, call_with_hooks
from telegrad.nn._repr import described, indent, typename
from telegrad.nn._state_dict import StateDictMixin
from telegrad.nn.parameter import Parameter
from telegrad_protocol.dtypes import BY_NAME, DType
from telegrad_protocol.errors import ArgumentTypeError, DTypeError
from telegrad_protocol.meta import Device

__all__ = ["Module"]


M = TypeVar("M", bound="Module")
_REGISTRIES = ("_parameters", "_buffers", "_modules")


class Module(StateDictMixin):
    """Base of layers and models, which assign parameters and submodules in ``__init__`` and define ``forward``.

    ``_transient`` has the names of buffers that are not part of the state.
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]
    _pre_hooks: dict[int, tuple[Callable[..., Any], bool]]
    _post_hooks: dict[int, tuple[Callable[..., Any], bool]]

    def __init__(self) -> None:
        for name in _REGISTRIES:
            object.__setattr__(self, name, {})
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_transient", set())
        object.__setattr__(self, "_pre_hooks", {})
        object.__setattr__(self, "_post_hooks", {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output of the module; calling the module calls this."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._pre_hooks or self._post_hooks:
            return call_with_hooks(self, self._pre_hooks, self._post_hooks, args, kwargs)
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._take(name, self._registry("_modules", "module"), value)
        elif not self._replace(name, value):
            object.__setattr__(self, name, value)

    def _registry(self, registry: str, what: str) -> dict[str, Any]:
        entries: dict[str, Any] | None = self.__dict__.get(registry)
        if entries is None:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        return entries

    def _replace(self, name: str, value: Any) -> bool:
        """Assign to a name that is a parameter, module or buffer already; return False if it is none."""
        for registry, wanted in (("_parameters", "telegrad.nn.Parameter"), ("_modules", "telegrad.nn.Module")):
            entries = self.__dict__.get(registry)
            if entries is not None and name in entries:
                if value is not None:
                    what = registry[1:-1].replace("modules", "module")
                    raise ArgumentTypeError(
                        f"cannot assign '{typename(value)}' as {described(what)} '{name}' ({wanted} or None expected)"
                    )
                entries[name] = None
                return True
        buffers = self.__dict__.get("_buffers")
        if buffers is None or name not in buffers:
            return False
        if value is not None and not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (telegrad.Tensor or None expected)"
            )
        buffers[name] = value
        return True

    def _take(self, name: str, registry: dict[str, Any], value: Any) -> None:
        """Make ``value`` the entry ``name`` of one registry, and remove that name from everywhere else."""
        self.__dict__.pop(name, None)
        for other in _REGISTRIES:
            entries = self.__dict__[other]
            if entries is not registry:
                entries.pop(name, None)
        self._transient.discard(name)
        registry[name] = value

    def __getattr__(self, name: str) -> Any:
        for registry in _REGISTRIES:
            entries = self.__dict__.get(registry)
            if entries is not None and name in entries:
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for registry in _REGISTRIES:
            if name in self.__dict__[registry]:
                del self.__dict__[registry][name]
                self._transient.discard(name)
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
        self._take(name, registry, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not trained; left out of ``state_dict`` if not ``persistent``."""
        registry = self._registry("_buffers", "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentTypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (telegrad.Tensor or None required)"
            )
        self._check_name(name, registry)
        registry[name] = tensor
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule; None keeps the name without one."""
        registry = self._registry("_modules", "module")
        if module is not None and not isinstance(module, Module):
            raise ArgumentTypeError(f"{typename(module)} is not a Module subclass")
        self._check_name(name, registry)
        registry[name] = module

    add_module = register_module

    def _check_name(self, name: str, registry: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"name should be a string, got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'name can\'t contain ".", got: {name}')
        if not name:
            raise KeyError('name can\'t be empty string ""')
        if hasattr(self, name) and name not in registry:
            raise KeyError(f"attribute '{name}' already exists")

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments."""
        return RemovableHandle.add(self._pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns replaces the output."""
        return RemovableHandle.add(self._post_hooks, (hook, with_kwargs), prepend)

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their paths; once each, with ``remove_duplicate``."""
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the direct submodules with their names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Iterate over the direct submodules."""
        return (module for _, module in self.named_children())

    def _named(self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in module.__dict__[registry].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over all parameters with their paths."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over all parameters; one that occurs twice comes once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over all buffers with their paths."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over all buffers; one that occurs twice comes once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the module at a path such as ``"encoder.0"``."""
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module  # type: ignore[no-any-return]

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path such as ``"encoder.0.weight"``."""
        return self._entry(target, "_parameters", "an nn.Parameter")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path such as ``"encoder.0.mask"``."""
        return self._entry(target, "_buffers", "a buffer")  # type: ignore[no-any-return]

    def _entry(self, target: str, registry: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module.__dict__[registry]:
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[registry][name]

    def train(self: M, mode: bool = True) -> M:
        """Switch layers such as dropout to training, or to evaluation."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            object.__setattr__(module, "training", mode)
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

    def _apply(self: M, fn: Callable[[Tensor], Tensor]) -> M:
        """Replace the elements of all parameters, gradients and buffers by ``fn`` of them."""
        with no_grad():
            for module in self.modules():
                for parameter in module._parameters.values():
                    if parameter is not None:
                        convert(parameter, fn)
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[name] = fn(buffer)
        return self

    @overload
    def to(
        self: M, device: str | Device | int | None = ..., dtype: DType | None = ..., non_blocking: bool = ...
    ) -> M: ...
    @overload
    def to(self: M, dtype: DType, non_blocking: bool = ...) -> M: ...
    @overload
    def to(self: M, tensor: Tensor, non_blocking: bool = ...) -> M: ...
    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move everything to a device, cast what is floating-point, and lay out pictures as ``memory_format`` says."""
        device, dtype = destination(args, kwargs)
        if dtype is not None and not dtype.is_differentiable:
            raise DTypeError(f"nn.Module.to: only floating-point and complex types are accepted, not {dtype.name}")

        def moved(tensor: Tensor) -> Tensor:
            wanted = dtype if tensor.dtype.is_differentiable else None
            converted = tensor.to(device or tensor.device, wanted or tensor.dtype)
            return in_format(converted, kwargs.get("memory_format"))

        return self._apply(moved)

    def _cast(self: M, name: str) -> M:
        dtype = BY_NAME[name]
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self: M) -> M:
        """Cast what is floating-point to float32."""
        return self._cast("float32")

    def double(self: M) -> M:
        """Cast what is floating-point to float64."""
        return self._cast("float64")

    def half(self: M) -> M:
        """Cast what is floating-point to float16."""
        return self._cast("float16")

    def bfloat16(self: M) -> M:
        """Cast what is floating-point to bfloat16."""
        return self._cast("bfloat16")

    def type(self: M, dst_type: DType) -> M:
        """Cast everything."""
        return self._apply(lambda t: t.to(dst_type))

    def cuda(self: M, device: int | str | Device | None = None) -> M:
        """Move everything to a GPU of the server."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self: M) -> M:
        """Move everything to the server's CPU."""
        return self._apply(lambda t: t.cpu())

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
