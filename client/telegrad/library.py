"""Operators of a program's own: a function under a name in ``telegrad.ops``, with kernels by device and a derivative.

They are called as functions are; what a compiler would ask, `register_fake` among it, is kept and never needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd.function import Function
from telegrad_protocol.errors import ArgumentError, NotComputedError

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "register_autograd", "register_fake", "register_kernel",
]  # fmt: skip

DeviceTypes: TypeAlias = "str | Iterable[str] | None"
_DEVICE_KEYS: Final = {"CPU": "cpu", "CUDA": "cuda"}
_ANY: Final = ""
OPERATORS: Final[dict[str, dict[str, CustomOpDef]]] = {}
"""By namespace and name."""


class CustomOpDef:
    """One operator; ``default`` is its only overload."""

    def __init__(self, qualname: str, signature: inspect.Signature | None = None) -> None:
        self._qualname, self._signature = qualname, signature
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._differentiable: type[Function] | None = None
        self.__name__ = qualname.rpartition(":")[2]

    @property
    def default(self) -> CustomOpDef:
        """The operator itself, as PyTorch names its only overload."""
        return self

    def __repr__(self) -> str:
        return f"<custom operator {self._qualname}>"

    def register_kernel(self, device_types: DeviceTypes, func: Callable[..., Any] | None = None, /) -> Any:
        """Have a function compute the operator where its first tensor is on such a device; a decorator too."""
        kinds = [_ANY] if device_types is None else [device_types] if isinstance(device_types, str) else device_types

        def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
            self._kernels.update(dict.fromkeys((_ANY if kind == "default" else kind for kind in kinds), kernel))
            self._signature = self._signature or inspect.signature(kernel)
            return kernel

        return register if func is None else register(func)

    def register_fake(self, func: Callable[..., Any], /) -> Callable[..., Any]:
        """Return the function, which a compiler would ask for the result's shape."""
        return func

    register_vmap = register_torch_dispatch = register_fake

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the operator a derivative, as `autograd.Function` has it."""
        operator = self

        class Differentiable(Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                result = operator._compute(args)
                if setup_context is not None:
                    setup_context(ctx, args, result)
                return result

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return backward(ctx, *grads)

        self._differentiable = Differentiable

    def _compute(self, args: tuple[Any, ...]) -> Any:
        devices = [value.device.type for value in args if isinstance(value, Tensor)]
        kernel = self._kernels.get(devices[0] if devices else _ANY) or self._kernels.get(_ANY)
        if kernel is None:
            raise NotComputedError(f"{self._qualname} has no kernel for {devices[0] if devices else 'no tensor'}")
        return kernel(*args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        if self._differentiable is not None:
            return self._differentiable.apply(*args)
        with no_grad():
            return self._compute(args)


def _operator(qualname: str, signature: inspect.Signature | None = None) -> CustomOpDef:
    """Return the operator of a name such as ``mylib::scale``, made where there is none."""
    namespace, separator, name = qualname.partition("::")
    if not separator or not name:
        raise ArgumentError(f"expected the name of an operator, such as 'mylib::scale', not {qualname!r}")
    known = OPERATORS.setdefault(namespace, {})
    plain = name.partition(".")[0]
    if plain not in known:
        known[plain] = CustomOpDef(qualname, signature)
    return known[plain]


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str] = (),
    device_types: DeviceTypes = None, schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Return the operator ``name`` that a function computes; a decorator without one. Later definitions replace it."""

    def define_by(func: Callable[..., Any]) -> CustomOpDef:
        namespace, _, plain = name.partition("::")
        OPERATORS.get(namespace, {}).pop(plain, None)
        operator = _operator(name, inspect.signature(func))
        operator.register_kernel(device_types, func)
        return operator

    return define_by if fn is None else define_by(fn)


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Name an operator, which `impl` and `register_kernel` give kernels."""
    _operator(qualname)
    return lambda func: func


def impl(
    qualname: str, types: DeviceTypes, func: Callable[..., Any] | None = None, *, lib: Library | None = None
) -> Any:
    """Have a function compute an operator on these devices, or on all for ``default``; a decorator too."""
    return _operator(qualname).register_kernel(types, func)


def _of(op: str | CustomOpDef) -> CustomOpDef:
    return op if isinstance(op, CustomOpDef) else _operator(op)


def register_kernel(
    op: str | CustomOpDef, device_types: DeviceTypes, func: Callable[..., Any] | None = None, /, *,
    lib: Library | None = None,
) -> Any:  # fmt: skip
    """Have a function compute an operator on these devices; a decorator too."""
    return _of(op).register_kernel(device_types, func)


def register_fake(
    op: str | CustomOpDef, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None, **_: Any
) -> Any:
    """Accept what a compiler would ask for the shapes of results; the function itself, or a decorator."""
    return (lambda given: given) if func is None else func


register_vmap = register_torch_dispatch = impl_abstract = register_fake


def register_autograd(
    op: str | CustomOpDef, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:  # fmt: skip
    """Give an operator a derivative."""
    _of(op).register_autograd(backward, setup_context=setup_context)


class Library:
    """Operators of one namespace, by the names of PyTorch's schemas and dispatch keys."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Name the operator of a schema such as ``scale(Tensor x, float by) -> Tensor``, and return its name."""
        name = schema.partition("(")[0].strip()
        _operator(f"{self.ns}::{name}")
        return name

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **_: Any) -> None:
        """Have a function compute an operator; keys that are of no device hold for all, Meta is accepted."""
        key = dispatch_key or self.dispatch_key
        name = str(op_name).rpartition("::")[2]
        if key not in ("Meta", "Autograd"):
            _operator(f"{self.ns}::{name}").register_kernel(_DEVICE_KEYS.get(key), fn)
