"""What is written into: whether it can be, and results that are copied into the targets of ``out=``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import LeafNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import can_cast
from telegrad_protocol.errors import ArgumentTypeError, AutogradError, DTypeError, InplaceError, ShapeError
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import describe


def targets_of(name: str, out: Any) -> tuple[Tensor, ...]:
    """Return the tensors of ``out``, which is a tensor or a tuple of tensors."""
    if isinstance(out, Tensor):
        return (out,)
    if isinstance(out, (tuple, list)) and all(isinstance(o, Tensor) for o in out):
        return tuple(out)
    raise ArgumentTypeError(f"{name}: out must be a tensor or a tuple of tensors, not {describe(out)}")


def into(name: str, result: Any, out: Any, exact: bool = False) -> Any:
    """Return ``result``, or ``out`` with the elements of ``result``; ``name`` is the function that errors name.

    An empty target takes the shape of its result; any other must have it, and a type that holds the result's: with
    ``exact`` the same one.
    """
    if out is None:
        return result
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    targets = targets_of(name, out)
    if len(targets) != len(results):
        raise ArgumentTypeError(f"{name}: out must hold {len(results)} tensors")
    if thread.modes.records and any(tensor.requires_grad for tensor in (*results, *targets)):
        raise AutogradError(
            f"{name}: out= does not support differentiation, but a tensor requires grad; use no_grad() or leave out="
        )
    for target, tensor in zip(targets, results, strict=True):
        _write(name, target, tensor, exact)
    return out


def _write(name: str, target: Tensor, tensor: Tensor, exact: bool) -> None:
    if target.dtype is not tensor.dtype and (exact or not can_cast(tensor.dtype, target.dtype)):
        raise DTypeError(f"{name}: result type {tensor.dtype.name} can't be cast to {target.dtype.name}")
    if target.shape == tensor.shape:
        target.copy_(tensor)
    elif target.numel() == 0:
        target._become(tensor.to(target.dtype))
    else:
        raise ShapeError(f"{name}: result of shape {list(tensor.shape)} does not fit into {target._meta}")


def check_separate(name: str, targets: Sequence[Tensor], operands: Iterable[Any], wholly: bool) -> None:
    """Refuse targets that share memory with an operand: in part, or with ``wholly`` also where they are the same.

    As in PyTorch, tensors with gaps between their elements are not compared.
    """
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            check_separate(name, targets, operand, wholly)
        elif isinstance(operand, Tensor):
            for target in targets:
                if _overlap(target, operand, wholly):
                    raise InplaceError(
                        f"{name}: out {target._meta} and the operand {operand._meta} share memory; clone() the operand"
                    )


def _overlap(target: Tensor, operand: Tensor, wholly: bool) -> bool:
    if target is operand:
        return wholly
    roots = [tensor if tensor._base is None else tensor._base for tensor in (target, operand)]
    ours, theirs = target._meta, operand._meta
    if roots[0] is not roots[1] or not (ours.numel and theirs.numel and ours.is_dense and theirs.is_dense):
        return False
    ends = [(meta.offset, meta.offset + meta.numel) for meta in (ours, theirs)]
    if ends[0] == ends[1]:
        return wholly
    return ends[0][0] < ends[1][1] and ends[1][0] < ends[0][1]


def check_target(op: Op, target: Any) -> None:
    """Refuse to write into a tensor, or into several, whose elements share memory among themselves."""
    for meta in target if isinstance(target, tuple) else (target,):
        if meta is not None and overlaps_itself(meta.shape, meta.strides):
            raise InplaceError(
                f"{op.public}: several elements of the written {meta} share memory; clone() the tensor before you write"
            )


def check_writable(op: Op, tensor: Tensor) -> None:
    """Refuse to modify what backward needs as it is, and outside of inference mode what was made in it."""
    if tensor._is_inference:
        raise InplaceError(
            f"{op.public}: {tensor._meta} was made in inference mode and is modified in place outside of it; "
            "clone() it first"
        )
    for candidate, what in ((tensor, "a leaf Variable"), (tensor._base, "a view of a leaf Variable")):
        if candidate is not None and candidate.requires_grad and isinstance(candidate._gradient_edge(), LeafNode):
            raise InplaceError(
                f"{op.public}: {what} that requires grad is being used in an in-place operation; use no_grad() or "
                "detach() it first"
            )
