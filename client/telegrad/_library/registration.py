"""The functions of ``telegrad.library`` that register something for an operator, however it is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, Final

from telegrad._batching.user_rules import by_rule
from telegrad_protocol.errors import ArgumentError, NotSupportedError, OperatorError

from . import keys, registry
from .custom_ops import DEFINITIONS, CustomOpDef, DeviceTypes, check_functional
from .libraries import KEPT, Library
from .operator_entry import Kernel
from .overloads import OpOverload
from .rules import casts
from .rules.derivatives import Derivative, autograd_kernel

_NAMELESS: Final = re.compile(r"\(.*\) -> .*", re.DOTALL)


def _target(op: Any, api: str) -> str | CustomOpDef:
    """Return the definition that ``custom_op`` has made of an operator, or its full name."""
    if isinstance(op, CustomOpDef):
        return op
    if isinstance(op, OpOverload):
        op = op._name
    if not isinstance(op, str):
        raise ArgumentError(f"{api}({op}): got unexpected type for op: {type(op)}")
    return DEFINITIONS.get(op, op)


def _library(qualname: str, lib: Library | None) -> Library:
    """Return the library that a registration is a part of: the one that is given, or one that lasts."""
    if lib is None:
        lib = Library(registry.split(qualname)[0], "IMPL" if qualname.startswith("aten::") else "FRAGMENT")
        KEPT.append(lib)
    return lib


def _overload(qualname: str) -> OpOverload:
    overload = registry.overload_of(qualname)
    if overload is None:
        namespace, name = registry.split(qualname)
        raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{name.partition('.')[0]}'")
    return overload


def define(qualname: Any, schema: str, alias_analysis: str = "", *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define the operator ``mylib::name`` of a schema without name, such as ``(Tensor x) -> Tensor``.

    With a library first, ``define(lib, "name(Tensor x) -> Tensor")`` decorates the function that computes it. Raises
    ArgumentError where the schema has not this form.
    """
    if isinstance(qualname, Library):
        library = qualname

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(library.define(schema, alias_analysis), function)
            return function

        return wrap
    if not isinstance(qualname, str):
        raise ArgumentError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, name = registry.split(qualname)
    if not _NAMELESS.fullmatch(schema):
        raise ArgumentError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        KEPT.append(lib)
    lib.define(name + schema, tags=tags)
    return None


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Have a function compute an operator on these types of devices, ``default`` for all, or for dispatch keys.

    A decorator without ``func``. With a library first, ``impl(lib, name, dispatch_key="")`` is one too.
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(name, function, key)
            return function

        return wrap
    kinds = (types,) if isinstance(types, str) else types
    named = [_key_name(kind) for kind in kinds]

    def register(function: Callable[..., Any]) -> None:
        library = _library(qualname, lib)
        for key in dict.fromkeys(named):
            library.impl(qualname, function, key)

    return register if func is None else register(func)


def _key_name(kind: str) -> str:
    if keys.is_key(kind):
        return kind
    return "CompositeExplicitAutograd" if kind == "default" else keys.key_of_device(kind)


def register_kernel(
    op: Any, device_types: DeviceTypes, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Have a function compute an operator on these types of devices, None for all; a decorator too."""
    target = _target(op, "register_kernel")
    if isinstance(target, CustomOpDef):
        return target.register_kernel(device_types, func)
    return impl(target, device_types or "CompositeExplicitAutograd", func, lib=lib)


def register_fake(
    op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None, _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:  # fmt: skip
    """Have a function make results of an operator without elements, for meta tensors; a decorator too."""
    target = _target(op, "register_fake")
    if isinstance(target, CustomOpDef):
        return target.register_fake if func is None else target.register_fake(func)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _, name = registry.split(target)
        _library(target, lib)._register_fake(name, function, allow_override=allow_override)
        return function

    return register if func is None else register(func)


def impl_abstract(
    qualname: Any, func: Callable[..., Any] | None = None, *, lib: Library | None = None, _stacklevel: int = 1
) -> Any:
    """Do what ``register_fake`` does, under its former name."""
    warnings.warn(
        "`torch.library.impl_abstract` was renamed to `torch.library.register_fake`. Please use that instead",
        FutureWarning, stacklevel=2,
    )  # fmt: skip
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:  # fmt: skip
    """Give an operator a derivative: see ``CustomOpDef.register_autograd``."""
    target = _target(op, "register_autograd")
    if isinstance(target, CustomOpDef):
        target.register_autograd(backward, setup_context=setup_context)
        return
    overload = _overload(target)
    check_functional(overload, overload, is_view_allowed=False)
    _refuse_named_tensors(overload, "register_autograd")
    kernel = autograd_kernel(overload, Derivative(backward, setup_context))
    _library(target, lib).impl(target, kernel, "Autograd", with_keyset=True)


def _refuse_named_tensors(overload: OpOverload, api: str) -> None:
    if any(argument.kwarg_only and argument.type.plain == "Tensor" for argument in overload._schema.arguments):
        raise NotSupportedError(
            f"{api} with kwarg-only Tensor args. In the original definition of the op, please make your tensors not "
            f"kwarg-only. Got: {overload._schema}"
        )


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """Give an operator a rule for batches: see ``CustomOpDef.register_vmap``; a decorator too."""
    target = _target(op, "register_vmap")
    if isinstance(target, CustomOpDef):
        return target.register_vmap(func)
    _refuse_named_tensors(_overload(target), "register_vmap")

    def register(rule: Callable[..., Any]) -> None:
        _library(target, lib).impl(
            target, lambda *args, **kwargs: by_rule(rule, args, kwargs), "FuncTorchBatched"
        )  # fmt: skip

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> Any:
    """Have tensors on such a device cast to this type before an operator runs, where autocast is on."""
    target = _target(op, "register_autocast")
    key = casts.key_of(device_type)
    if isinstance(target, CustomOpDef):
        return target.register_autocast(device_type, cast_inputs)
    kernel = casts.kernel(_overload(target), key, device_type, cast_inputs)
    _library(target, lib).impl(target, kernel, key)
    return kernel


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Have a function answer for a class or mode instead of its ``__torch_dispatch__``; a decorator too."""
    target = _target(op, "register_torch_dispatch")
    if isinstance(target, CustomOpDef):
        return target.register_torch_dispatch(torch_dispatch_class, func)

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        _library(target, lib)._register_torch_dispatch_rule(target, torch_dispatch_class, rule)
        return rule

    return register if func is None else register(func)


class SafeKernelFunction:
    """A kernel of an operator as it was when it was asked for; later registrations do not change it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def call_boxed(self, keyset: keys.DispatchKeySet, /, *args: Any, **kwargs: Any) -> Any:
        """Run it for a call with these keys."""
        given = (keyset, *args) if self._kernel.takes_keys else args
        return self._kernel.function(*given, **kwargs)

    def __repr__(self) -> str:
        return f"<SafeKernelFunction {self._kernel.source or 'of telegrad'}>"


def get_kernel(op: Any, dispatch_key: Any) -> SafeKernelFunction:
    """Return the kernel that computes an operator for a dispatch key now. Raises OperatorError if there is none."""
    if isinstance(op, OpOverload):
        op = op._name
    if not isinstance(op, str):
        raise ArgumentError(f"get_kernel({op}): got unexpected type for op: {type(op)}")
    if isinstance(dispatch_key, str) and not keys.is_key(dispatch_key):
        raise ArgumentError(f"Invalid dispatch key: {dispatch_key}")
    key = keys.parse_key(dispatch_key)
    kernel = _overload(op)._operator.kernel_for(key)
    if kernel is None:
        raise OperatorError(f"no kernel for {key.name} for {op}")
    return SafeKernelFunction(kernel)
