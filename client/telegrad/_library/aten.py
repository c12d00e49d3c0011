"""The operators of PyTorch's own library, ``telegrad.ops.aten``: their schemas, and telegrad's functions that run them.

The schemas are a table of text, read when a program first names an operator. Most operators are the functions that
users know under the same name; ``aten_functions`` has those that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from telegrad._ops.replaced import passing
from telegrad._session.grad_mode import enable_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad.autograd import grad
from telegrad.autograd.function import Function
from telegrad_protocol.errors import NotSupportedError

from . import keys
from .aten_functions import function_of
from .aten_tags import tags_of
from .operator_entry import Kernel, Operator
from .overloads import OpOverload, OpOverloadPacket
from .schemas.text import parse_schema
from .state import AutoDispatchBelowAutograd

NAMESPACE: Final = "aten"
_TAKES_NUMBERS: Final = frozenset(
    f"{name}{mark}"
    for name in [
        "add",
        "sub",
        "subtract",
        "mul",
        "multiply",
        "div",
        "divide",
        "true_divide",
        "floor_divide",
        "remainder",
        "fmod",
        "rsub",
    ]
    for mark in ("", "_")
)
"""Operators for whose tensors a program may give numbers."""
_PACKETS: Final[dict[str, AtenPacket | None]] = {}


@cache
def _table() -> dict[str, list[str]]:
    """Return the schemas of all operators, as text, by name."""
    table: dict[str, list[str]] = {}
    for line in files(__package__).joinpath("aten_schemas.txt").read_text().splitlines():
        table.setdefault(line[: line.index("(")].partition(".")[0], []).append(line)
    return table


def names() -> list[str]:
    """Return the names of all operators of which there is a schema."""
    return [*_table()]


class AtenOperator(Operator):
    """An overload of an operator that telegrad computes itself, unless kernels of the program's are in the way."""

    asks_python = False

    def __init__(self, text: str, name: str) -> None:
        schema = parse_schema(f"{NAMESPACE}::{text}")
        super().__init__(schema, tags_of(schema), takes_numbers=name in _TAKES_NUMBERS)
        self.public = name
        self.compute: Callable[..., Any] | None = function_of(name)
        self._own = Kernel(self.run)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator, passing by kernels of the program's for it. Raises NotSupportedError if there is none.
        """  # fmt: skip
        if self.compute is None:
            raise NotSupportedError(f"{self.name}: telegrad has no such operation; docs/operations.md lists all it has")
        with passing(self.public):
            return self.compute(*args, **kwargs)

    def kernel_for(self, key: Any) -> Kernel | None:
        known = super().kernel_for(key)
        if known is not None:
            return known
        if key < keys.DispatchKey.BackendSelect:
            return self._own
        backend = key.name.removeprefix("Autograd")
        is_replaced = keys.AUTOGRAD >> key & 1 and keys.is_key(backend) and self.has(backend)
        return Kernel(self._recording, True) if is_replaced else None

    def _recording(self, of_call: keys.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        """Run the program's kernel for a device, and record the derivative of telegrad's own function."""
        lower = of_call & keys.AFTER_AUTOGRAD
        selected = self.select(lower.bits)
        if selected is None:
            return self.run(*args, **kwargs)
        tensors = [*tensors_in([*args, *kwargs.values()])]
        if self.schema.is_mutable or not (thread.modes.records and any(tensor._is_tracked() for tensor in tensors)):
            return _called(selected[1], lower, args, kwargs)
        return _Replaced.apply(self, selected[1], lower, args, kwargs, *tensors)


def _called(kernel: Kernel, of_call: keys.DispatchKeySet, args: Any, kwargs: Any) -> Any:
    return kernel.function(of_call, *args, **kwargs) if kernel.takes_keys else kernel.function(*args, **kwargs)


class _Replaced(Function):
    """An operator of telegrad's whose results a kernel of the program computes, and whose gradients are its own."""

    @staticmethod
    def forward(ctx: Any, operator: AtenOperator, kernel: Kernel, of_call: Any, *given: Any) -> Any:
        args, kwargs, *tensors = given
        ctx.operator, ctx.arguments = operator, (args, kwargs)
        ctx.save_for_backward(*tensors)
        with AutoDispatchBelowAutograd():
            return _called(kernel, of_call, args, kwargs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in ctx.saved_tensors]
        remaining = iter(leaves)
        args, kwargs = ctx.arguments
        with enable_grad():
            result = ctx.operator.run(
                *_substituted(args, remaining),
                **dict(zip(kwargs, _substituted(kwargs.values(), remaining), strict=True)),
            )
        pairs = [
            (out, gradient)
            for out, gradient in zip(result if isinstance(result, tuple) else (result,), gradients, strict=True)
            if isinstance(out, Tensor) and out.requires_grad and gradient is not None
        ]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(grad([out for out, _ in pairs], wanted, [given for _, given in pairs], allow_unused=True))
        return (None,) * 5 + tuple([next(found) if leaf.requires_grad else None for leaf in leaves])


def _substituted(values: Any, tensors: Any) -> list[Any]:
    """Return values with their tensors, in lists too, replaced by the next of ``tensors``."""
    return [
        next(tensors)
        if isinstance(value, Tensor)
        else [next(tensors) if isinstance(item, Tensor) else item for item in value]
        if isinstance(value, (list, tuple))
        else value
        for value in values
    ]


class AtenPacket(OpOverloadPacket):
    """An operator of PyTorch's library. A call of all its overloads is one of telegrad's function, which selects."""

    def __init__(self, name: str, texts: list[str]) -> None:
        super().__init__(NAMESPACE, name)
        self._texts = {_overload_in(text): text for text in texts}
        self._compute = function_of(name)

    def overloads(self) -> list[str]:
        return [*self._texts]

    @property
    def made(self) -> dict[str, OpOverload]:
        """All overloads by name."""
        return {name: getattr(self, name) for name in self._texts}

    def __getattr__(self, name: str) -> OpOverload:
        text = self.__dict__.get("_texts", {}).get(name)
        if text is None or name in self._by_name:
            return super().__getattr__(name)
        return self.add(AtenOperator(text, self._name_in_space))

    def is_replaced(self) -> bool:
        """Whether the program has registered a kernel for one of the overloads."""
        return any(overload._operator.kernels for overload in self._by_name.values())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._compute is None or self.is_replaced():
            return self.resolve(args, kwargs)(*args, **kwargs)
        if "self" in kwargs:
            args = (kwargs.pop("self"), *args)
        return self._compute(*args, **kwargs)

    def resolve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        self.made  # noqa: B018 - all overloads are to be asked
        return super().resolve(args, kwargs)


def _overload_in(text: str) -> str:
    return text[: text.index("(")].partition(".")[2] or "default"


def packet(name: str) -> AtenPacket | None:
    """Return the operator of a name; None if PyTorch has none."""
    if name not in _PACKETS:
        texts = _table().get(name)
        if texts is None and function_of(name) is None:
            return None
        _PACKETS[name] = AtenPacket(name, texts or [])
    return _PACKETS[name]


def made() -> dict[str, OpOverloadPacket]:
    """Return the operators that a program has named, by name."""
    return {name: known for name, known in _PACKETS.items() if known is not None}


def full_names() -> list[str]:
    """Return the full names of all overloads."""
    return [f"{NAMESPACE}::{text[: text.index('(')]}" for texts in _table().values() for text in texts]
