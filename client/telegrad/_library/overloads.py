"""What ``telegrad.ops`` hands out: namespaces, operators by name, and their overloads, which are called."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import OperatorError

from . import dispatch, keys
from .operator_entry import Kernel, Operator
from .plain_calls import UNUSUAL
from .schemas.types import FunctionSchema


class OpOverload:
    """One overload of an operator, such as ``telegrad.ops.aten.mul.Tensor``."""

    def __init__(self, packet: OpOverloadPacket, operator: Operator) -> None:
        self._overloadpacket = self.overloadpacket = packet
        self._operator = operator
        self._schema: FunctionSchema = operator.schema
        self._overloadname = operator.schema.overload_name or "default"
        self._name = operator.name
        self.namespace, _, self._opname = operator.schema.name.partition("::")
        self.__name__ = self.__qualname__ = f"{self._opname}.{self._overloadname}"
        self.__module__ = f"torch._ops.{self.namespace}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        operator = self._operator
        plain = operator.plain_calls
        if plain is not None:
            result = plain.call(args, kwargs)
            if result is not UNUSUAL:
                return result
        return dispatch.call(self, operator, args, kwargs)

    def redispatch(self, keyset: keys.DispatchKeySet, /, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel of the highest of these keys."""
        return dispatch.redispatch(self, self._operator, keyset.bits, args, kwargs)

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel that consists of other operators; NotImplemented where there is none."""
        implicit = keys.parse_key("CompositeImplicitAutograd")
        kernels = self._operator.kernels.get(implicit)
        return kernels[-1].function(*args, **kwargs) if kernels else NotImplemented

    def name(self) -> str:
        """Namespace, name and overload."""
        return self._name

    @property
    def op(self) -> OpOverload:
        return self

    _op = op

    @property
    def tags(self) -> list[Any]:
        """What the operator is marked with."""
        return list(self._operator.tags)

    @property
    def is_view(self) -> bool:
        """Whether it returns views."""
        return self._schema._is_view_op()

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether a kernel is registered for this key itself."""
        return keys.parse_key(key) in self._operator.kernels

    def py_impl(self, key: Any) -> Any:
        """Return a decorator that registers a kernel for a key."""

        def register(function: Any) -> Any:
            self._operator.register(keys.parse_key(key), Kernel(function))
            return function

        return register

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self


class OpOverloadPacket:
    """An operator with all its overloads; a call selects the first one that takes the arguments."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self._name_in_space = namespace, name
        self._qualified_op_name = f"{namespace}::{name}"
        self.__name__ = self.__qualname__ = name
        self.__module__ = f"torch._ops.{namespace}"
        self._by_name: dict[str, OpOverload] = {}

    def add(self, operator: Operator) -> OpOverload:
        """Add an overload."""
        made = self._by_name[operator.schema.overload_name or "default"] = OpOverload(self, operator)
        return made

    def remove(self, overload_name: str) -> bool:
        """Remove an overload; return whether there are others."""
        self._by_name.pop(overload_name or "default", None)
        return bool(self._by_name)

    def overloads(self) -> list[str]:
        """Return the names of the overloads."""
        return [*self._by_name]

    @property
    def op(self) -> OpOverloadPacket:
        return self

    _op = op

    @property
    def _overload_names(self) -> list[str]:
        return ["" if name == "default" else name for name in self._by_name]

    @property
    def _schemas(self) -> dict[str, FunctionSchema]:
        return {overload._schema.overload_name: overload._schema for overload in self._by_name.values()}

    def __getattr__(self, name: str) -> OpOverload:
        overload: OpOverload | None = self.__dict__.get("_by_name", {}).get(name)
        if overload is None:
            if name.startswith("__"):
                raise AttributeError(f"'{self.__dict__.get('_qualified_op_name')}' has no attribute {name!r}")
            shown = f"{self._namespace}.{self._name_in_space}"
            raise AttributeError(f"The underlying op of '{shown}' has no overload name '{name}'")
        return overload

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        overloads = [*self._by_name.values()]
        if len(overloads) == 1:
            return overloads[0](*args, **kwargs)
        try:
            chosen = self.resolve(args, kwargs)
        except OperatorError as error:
            return dispatch.answered_by_classes(self, args, kwargs, error)
        return chosen(*args, **kwargs)

    def resolve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        """Return the first overload that takes these arguments. Raises OperatorError where none does."""
        problems = []
        for overload in self._by_name.values():
            try:
                overload._operator.binder.bind(args, kwargs)
            except OperatorError as error:
                problems.append(error.message)
                continue
            return overload
        raise OperatorError(
            "Overloaded torch operator invoked from Python failed to match any schema:\n" + "\n\n".join(problems)
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._by_name]

    def __iter__(self) -> Any:
        return iter(self._by_name)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._namespace}.{self._name_in_space}')>"

    def __str__(self) -> str:
        return f"{self._namespace}.{self._name_in_space}"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self
