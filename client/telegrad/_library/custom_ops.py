"""``custom_op``: operators that are functions of the program, with kernels by device and rules for other systems."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from telegrad._batching.user_rules import by_rule
from telegrad._functions.creation import from_numpy
from telegrad._ops.sharing import watched
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.listed import tensors_in
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, NotSupportedError, OperatorError

from . import keys
from .effects import EffectType, register
from .libraries import Library
from .overloads import OpOverload
from .plain_calls import PlainCalls
from .rules import casts, fakes
from .rules.aliases import check_inplace, check_out, check_separate
from .rules.derivatives import Derivative, autograd_kernel, plain_recorder
from .schemas.annotations import infer_schema
from .schemas.tags import Tag, normalized
from .schemas.text import parse_schema
from .schemas.types import FunctionSchema

DeviceTypes: TypeAlias = "str | Iterable[str] | None"
_LIBRARIES: Final[dict[str, Library]] = {}
"""By full name, the libraries that operators are registered by, which a later definition of the same name replaces."""
_MISSING: Final[Any] = object()
DEFINITIONS: Final[WeakValueDictionary[str, CustomOpDef]] = WeakValueDictionary()


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None, schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Return the operator ``name``, such as ``mylib::scale``, that a function computes; a decorator without one.

    ``mutates_args`` names the tensors that the function writes into, or is ``"unknown"``. ``device_types`` are those
    whose tensors it takes, by default all. The schema is inferred from the annotations unless it is given. A later
    definition of the same name replaces this one. Raises ArgumentError where the annotations allow no schema.
    """

    def define(function: Callable[..., Any]) -> CustomOpDef:
        marks = normalized(tags)
        text = infer_schema(function, mutates_args=mutates_args, tags=marks) if schema is None else schema
        namespace, separator, plain = name.partition("::")
        if not separator or not plain or "::" in plain:
            raise ArgumentError(f"expected the name of an operator, such as 'mylib::scale', not {name!r}")
        made = CustomOpDef(namespace, plain, text, function, marks)
        if schema is not None:
            _check_consistent(made._opoverload._schema, mutates_args, schema)
        made.register_kernel(device_types)(function)
        return made

    return define if fn is None else define(fn)


def _check_consistent(schema: FunctionSchema, mutates_args: Any, text: str) -> None:
    written = {argument.name for argument in schema.arguments if argument.is_write}
    if written != set(mutates_args):
        raise ArgumentError(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={text}. The schema "
            f"suggests that the op mutates {written} which is different from what was provided to us in "
            "`mutates_args`. Please make these consistent."
        )


class CustomOpDef:
    """An operator that `custom_op` has defined, and what is registered for it."""

    def __init__(
        self, namespace: str, name: str, schema: str, fn: Callable[..., Any], tags: tuple[Any, ...] = ()
    ) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._disabled: set[str | None] = set()
        self._fake: Callable[..., Any] | None = None
        self._derivative = Derivative()
        self._vmap_rule: Callable[..., Any] | None = None
        self._cast_to: dict[str, DType] = {}
        self._is_inplace, self._is_out = Tag.inplace in tags, Tag.out in tags
        self.__name__, self.__doc__ = name, fn.__doc__
        parsed = parse_schema(name + schema)
        if not self._is_out and any(a.kwarg_only and a.type.plain == "Tensor" for a in parsed.arguments):
            raise NotSupportedError(
                "custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: "
                f"{name}{schema}"
            )  # fmt: skip
        former = _LIBRARIES.pop(self._qualname, None)
        if former is not None:
            former._destroy()
        self._lib = _LIBRARIES[self._qualname] = Library(namespace, "FRAGMENT")
        marks = (Tag.pt2_compliant_tag, *(tag for tag in tags if tag is not Tag.pt2_compliant_tag))
        self._lib.define(name + schema, tags=marks)
        self._opoverload: OpOverload = self._lib.defined[-1]
        self._lib._register_fake(name, self._run_fake)
        run = autograd_kernel(self._opoverload, self._derivative, refuses_gradients=self._is_out)
        self._lib.impl(name, run, "Autograd", with_keyset=True)
        operator, is_plain = self._opoverload._operator, not (self._is_inplace or self._is_out)
        is_functional = is_plain and not (parsed.is_mutable or parsed._is_view_op())
        self._functions: dict[Any, str | None] = {}
        """By the kernels that are registered for it, the device whose function they run."""
        if not any(argument.kwarg_only for argument in parsed.arguments):
            operator.plain_calls = PlainCalls(operator, name, run, self._function_of, is_functional)
        DEFINITIONS[self._qualname] = self

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: DeviceTypes, fn: Callable[..., Any] | None = None, /) -> Any:
        """Have a function compute the operator for tensors on such devices; a decorator too. None stands for all."""
        kinds: list[Any] = [device_types] if device_types is None or isinstance(device_types, str) else [*device_types]
        arguments = self._opoverload._schema.arguments
        takes_tensors = any(argument.type.plain == "Tensor" for argument in arguments)
        takes_device = any(argument.type.kind == "Device" and argument.name == "device" for argument in arguments)
        if device_types is not None and not takes_tensors and not takes_device:
            raise ArgumentError(
                "Functions without tensor inputs are required to have a `device: torch.device` argument"
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for kind in kinds:
                if kind not in self._kernels:
                    key = "CompositeExplicitAutograd" if kind is None else keys.key_of_device(kind)
                    self._lib.impl(self._name, self._kernel(kind), key)
                self._kernels[kind] = function
            return function

        return register if fn is None else register(fn)

    def _kernel(self, kind: str | None) -> Callable[..., Any]:
        """Return the kernel of a device, which checks what the function of that device returns."""
        schema = self._opoverload._schema
        is_view, (places, outs) = schema._is_view_op(), schema.written

        def run(*args: Any, **kwargs: Any) -> Any:
            function: Any = self._function_of(run)
            written = [args[place] for place in places if place < len(args)] + [kwargs[name] for name in outs]
            with watched(tensors_in(written)) as changed:
                result = function(*args, **kwargs)
                if self._is_inplace:
                    check_inplace(self._name, args, result, function)
                elif self._is_out:
                    check_out(self._name, [kwargs[name] for name in outs], result, function)
                elif not is_view:
                    check_separate(self._name, args, kwargs, result, function)
            for tensor, array in changed:
                with no_grad():
                    tensor.copy_(from_numpy(array))
            return result

        self._functions[run] = kind
        return run

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Have the function that the operator was made of run in this block instead of a device's own, or not."""
        if device_type not in self._kernels:
            warnings.warn(f"no kernel of {self} was registered for {device_type}", stacklevel=3)
        before = set(self._disabled)
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            self._disabled = before

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Have a function make results of the right shapes and types, without their elements, for meta tensors."""
        self._fake = fn
        return fn

    def _run_fake(self, *args: Any, **kwargs: Any) -> Any:
        operator = self._opoverload._operator
        if self._fake is not None:
            return fakes.run(operator, self._fake, args, kwargs)
        if fakes.has_trivial(operator):
            return fakes.run_trivial(operator, args, kwargs)
        raise OperatorError(
            f"There was no fake impl registered for {self}. This is necessary for torch.compile/export/fx tracing to "
            f"work. Please use `{self._init_fn.__name__}.register_fake` to add an fake impl."
        )

    def _function_of(self, kernel: Any) -> Callable[..., Any] | None:
        """Return the function that a kernel of this definition runs now; None for another kernel."""
        kind = self._functions.get(kernel, _MISSING)
        if kind is _MISSING:
            return None
        return self._init_fn if kind in self._disabled else self._kernels[kind]

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the operator a derivative: ``backward(ctx, *grads)`` returns a gradient or None for each argument.

        ``setup_context(ctx, inputs, output)`` saves what it needs; ``keyword_only_inputs`` is a parameter before
        ``output`` where the operator has such. Raises OperatorError for operators that write into arguments.
        """
        check_functional(self._opoverload, self, is_view_allowed=True)
        self._derivative.backward, self._derivative.setup_context = backward, setup_context
        plain = self._opoverload._operator.plain_calls
        if plain is not None:
            plain.recorder = plain_recorder(self._opoverload, self._derivative, plain)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Give the operator a rule for batches: ``func(info, in_dims, *args)`` returns results and their dimensions."""

        def register(rule: Callable[..., Any]) -> None:
            if self._vmap_rule is None:
                self._lib.impl(
                    self._name,
                    lambda *args, **kw: by_rule(self._vmap_rule, args, kw),
                    "FuncTorchBatched",
                )
            self._vmap_rule = rule

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: DType) -> Any:
        """Have tensors on such a device cast to this type before the operator runs, where autocast is on."""
        key = casts.key_of(device_type)
        is_new = device_type not in self._cast_to
        self._cast_to.setdefault(device_type, cast_inputs)
        kernel = casts.kernel(self._opoverload, key, device_type, cast_inputs)
        if is_new:
            self._lib.impl(self._name, kernel, key)
        return kernel

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Have a function answer for a class or mode instead of its ``__torch_dispatch__``; a decorator too."""

        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            self._lib._register_torch_dispatch_rule(self._name, torch_dispatch_class, rule)
            return rule

        return register if fn is None else register(fn)

    def register_effect(self, effect: EffectType | None) -> None:
        """Tell that the operator does more than its results show: ``EffectType.ORDERED``; None takes it back."""
        register(self._qualname, effect)


def check_functional(overload: OpOverload, named: Any, *, is_view_allowed: bool) -> None:
    """Raise OperatorError where an operator cannot have a derivative, since it writes into arguments or returns views.
    """  # fmt: skip
    schema = overload._schema
    if Tag.out in overload.tags:
        raise OperatorError(
            f"Cannot register autograd formula for operator tagged with torch.Tag.out: {named}. Out variants do not "
            "support autograd."
        )
    tensors = [item for item in schema.arguments if item.type.kind == "Tensor"]
    is_plain_view = is_view_allowed and len(tensors) == 1 and len(schema.returns) == 1
    is_view = any(result.alias_info is not None for result in schema.returns)
    if schema.is_mutable or not schema.returns or (is_view and not is_plain_view):
        raise OperatorError(
            f"Cannot register autograd formula for non-functional operator {named} with schema {schema}. Please create "
            "a functional operator and register an autograd formula for that."
        )
