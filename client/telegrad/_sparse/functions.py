"""The table of operations that take sparse tensors, by their public names, and who looks them up in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from telegrad._ops.operands.implementations import Table
from telegrad._ops.operands.implementations import run as run
from telegrad._tensor.layouts import sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError

from .tensor import SparseTensor

TABLE: Final = Table()
implements: Final = TABLE.implements


def dispatch(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation of which an operand is sparse; the form in place, and ``out=``, follow from the plain one."""
    implementation = TABLE.get(public)
    if implementation is not None:
        out = kwargs.pop("out", None)
        result = implementation(*args, **kwargs)
        return result if out is None else _into(out, result, public)
    plain = TABLE.get(public.removesuffix("_"))
    if plain is not None and public.endswith("_") and isinstance(args[0], SparseTensor):
        return args[0].become(plain(*args, **kwargs), public)
    raise unsupported(public, (*args, *kwargs.values()))


def _into(out: Tensor, result: Tensor, name: str) -> Tensor:
    if isinstance(out, SparseTensor):
        return out.become(result, name)
    if isinstance(result, SparseTensor):
        if result._kind is sparse_coo:
            raise NotSupportedError(f"{name}: out= must be a {result._kind.name} tensor")
        result = result.to_dense()
    return out.copy_(result) if out.shape == result.shape else out.resize_(result.shape).copy_(result)


def unsupported(public: str, operands: Iterable[Any]) -> NotSupportedError:
    """Return the error of an operation that sparse tensors do not have."""
    kinds = sorted({operand._kind.name for operand in _flat(operands) if isinstance(operand, SparseTensor)})
    return NotSupportedError(f"{public}: not supported for {' and '.join(kinds)} tensors; use to_dense()")


def _flat(operands: Iterable[Any]) -> Iterable[Any]:
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            yield from _flat(operand)
        else:
            yield operand
