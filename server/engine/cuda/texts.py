"""Asks factories for the texts of their kernels without a device: which texts certain calls of operations need.

A call names an operation and gives its arguments, metas in place of tensors. Nothing is compiled or launched here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from server.engine import keys, ops
from server.engine.operators import OPERATORS, Factory, Request
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta

from .families import import_families
from .runtime.launch import Collection, collecting

_ = ops  # registers all operations

DEVICE = Device("cuda:0")


class Call(NamedTuple):
    """An operation's name and its arguments, metas in place of tensors."""

    name: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}


def call(name: str, *args: Any, **keywords: Any) -> Call:
    """A call, written as a caller writes it."""
    return Call(name, args, keywords)


def tensor(dtype: DType, *shape: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> Meta:
    """The meta of a tensor on the described device; row-major without ``strides``, which count elements."""
    return Meta.of(shape, dtype, DEVICE, strides, offset)


class DescribedDevice:
    """What factories see of a device, without memory."""

    key = keys.CUDA
    device = DEVICE
    index = 0
    stream = 0

    def at_once(self, work: Callable[..., Any]) -> Callable[..., Any]:
        return work


def texts_of(calls: Iterable[Call], target: str) -> Collection:
    """The texts that the factories of these calls would load on a device of the architecture ``target``."""
    import_families()
    with collecting(target) as collection:
        for one in calls:
            ask(one)
    return collection


def ask(one: Call) -> None:
    """Ask an operation's factories in turn, as a plan does, until one takes the arguments."""
    request = _request(one)
    for preparer in OPERATORS[one.name].preparers.get(keys.CUDA, ()):
        if preparer.factory(request) is not None:
            return
    finder = OPERATORS[one.name].finders.get(keys.CUDA)
    if finder is not None:
        finder(request, lambda args: None)


def ask_all(one: Call) -> list[Factory]:
    """Ask all factories of an operation, also those that a plan would not reach; those that take the arguments."""
    request = _request(one)
    factories = [preparer.factory for preparer in OPERATORS[one.name].preparers.get(keys.CUDA, ())]
    return [factory for factory in factories if factory(request) is not None]


def _request(one: Call) -> Request:
    op = OPERATORS[one.name].op
    bound = op.normalize(op.bind(one.args, dict(one.keywords)), lambda item: isinstance(item, Meta))
    inferred = op.infer(bound)
    outs = inferred if isinstance(inferred, tuple) else (inferred,)
    base = bound[: len(op.base.params)]
    compute = op.base.compute_dtype(base) if op.promotion else None
    if op.form == "functional" and op.mutates:
        outs = ()
    return Request(op.base, DescribedDevice(), base, outs, compute)  # type: ignore[arg-type]
