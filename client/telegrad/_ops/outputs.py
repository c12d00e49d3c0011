"""What is written into: whether it can be, and results that are copied into the targets of ``out=``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import LeafNode, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, AutogradError, InplaceError
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op
from telegrad_protocol.ops.contract import describe
from telegrad_protocol.ops.targets import ONE_VALUE_EVERYWHERE, check_target_type

from .operands.expanded_targets import SELECTING, is_expanded

_OF_SEVERAL_VIEWS = frozenset(("ChunkBackward0", "SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0"))
"""Names of nodes of operations that return several views."""


def targets_of(name: str, out: Any) -> tuple[Tensor, ...]:
    """Return the tensors of ``out``, which is a tensor or a tuple of tensors."""
    if isinstance(out, Tensor):
        return (out,)
    if isinstance(out, (tuple, list)) and all(isinstance(o, Tensor) for o in out):
        return tuple(out)
    raise ArgumentTypeError(f"{name}: out must be a tensor or a tuple of tensors, not {describe(out)}")


def into_resized(
    op: Op, result: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], warns: bool
) -> Any:  # fmt: skip
    """Return the targets, of which some have other shapes than the results, as ``into`` does.

    They are refused where an operation's targets must share no memory with its operands, and theirs would grow so far.
    """
    if "grown" in op.out_rules:
        results = (result,) if isinstance(result, Tensor) else tuple(result)
        check_separate(op.public, targets_of(op.public, out), (*args, *kwargs.values()), True, results)
    return into(op.name, result, out, warns)


def into(name: str, result: Any, out: Any, warns: bool = True) -> Any:
    """Return ``result``, or the targets ``out`` with its elements; ``name`` is that of the operation or the function.

    A target of another shape takes that of its result, with a warning unless it was empty or ``warns`` is False. It
    must have a type that holds the result's: the same one, if the function is among ``EXACT_TARGETS``.
    """
    if out is None:
        return result
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    function = name.partition(".")[0]
    targets = targets_of(function, out)
    if len(targets) != len(results):
        raise ArgumentTypeError(f"{function}: out must hold {len(results)} tensors")
    if thread.modes.records and any(tensor.requires_grad for tensor in (*results, *targets)):
        raise AutogradError(
            f"{function}: out= does not support differentiation, but one of the tensors requires grad; use no_grad() "
            "or leave out="
        )
    for target, tensor in zip(targets, results, strict=True):
        check_target_type(name, target.dtype, tensor.dtype)
        check_distinct(function, target._meta)
    for target, tensor in zip(targets, results, strict=True):
        _write(target, tensor, warns)
    return result._make(targets) if hasattr(result, "_make") else out


def _write(target: Tensor, tensor: Tensor, warns: bool) -> None:
    if target.shape == tensor.shape:
        target.copy_(tensor)
        return
    if warns and target.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does not "
            f"match the required output shape {list(tensor.shape)}; give it no elements by t.resize_(0) before you use "
            "it again",
            UserWarning,
            stacklevel=2,
        )
    target._become(tensor.to(target.dtype))


def like_target(target: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a function that makes tensors, with type and device of the target where none are given."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    return {"dtype": target.dtype, "device": target.device, **given}


def check_separate(
    name: str, targets: Sequence[Tensor], operands: Iterable[Any], wholly: bool, results: Sequence[Tensor] = ()
) -> None:
    """Refuse targets that share memory with an operand: in part, or with ``wholly`` also where they are the same.

    The same memory in another order is shared in part. As in PyTorch, tensors with gaps between their elements are not
    compared, and targets of other shapes than those of ``results``, if these are given, begin where they do and end
    where the results would.
    """
    metas = [target._meta for target in targets]
    if results:
        metas = [_resized(meta, result.shape) for meta, result in zip(metas, results, strict=True)]
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            check_separate(name, targets, operand, wholly, results)
        elif isinstance(operand, Tensor):
            for target, meta in zip(targets, metas, strict=True):
                if _overlap(target, meta, operand, wholly):
                    raise InplaceError(
                        f"{name}: unsupported operation: target {target._meta} and operand {operand._meta} share "
                        "memory: some elements of the input tensor and the written-to tensor refer to a single memory "
                        "location; clone() the operand"
                    )


def _resized(meta: Meta, shape: Sequence[int]) -> Meta:
    """A target's memory once it has another shape."""
    return meta if meta.shape == tuple(shape) else Meta.of(shape, meta.dtype, meta.device, None, meta.offset)


def _overlap(target: Tensor, ours: Meta, operand: Tensor, wholly: bool) -> bool:
    """Whether a target, which will have the memory that its meta tells, shares some of it with an operand."""
    if target is operand:
        return wholly
    roots = [tensor if tensor._base is None else tensor._base for tensor in (target, operand)]
    theirs = operand._meta
    if roots[0] is not roots[1] or not (ours.numel and theirs.numel and ours.is_dense and theirs.is_dense):
        return False
    ends = [(meta.offset, meta.offset + meta.numel) for meta in (ours, theirs)]
    if ends[0] == ends[1]:
        return wholly or ours.strides != theirs.strides
    return ends[0][0] < ends[1][1] and ends[1][0] < ends[0][1]


def check_target(op: Op, target: Any) -> None:
    """Refuse to write into a tensor, or into several, whose elements share memory among themselves."""
    if op.name in ONE_VALUE_EVERYWHERE:
        return
    if op.public in SELECTING and is_expanded(target):
        raise ArgumentTypeError(f"{op.public}: the target is expanded")  # which has the call written in another way
    for meta in target if isinstance(target, tuple) else (target,):
        if meta is not None:
            check_distinct(op.public, meta)


def check_distinct(name: str, meta: Meta) -> None:
    """Refuse a target whose elements share memory among themselves."""
    if overlaps_itself(meta.shape, meta.strides):
        raise InplaceError(
            f"{name}: unsupported operation: several elements of the written {meta} share memory: more than "
            "one element of the written-to tensor refers to a single memory location; clone() the tensor before "
            "you write"
        )


def _is_leaf(tensor: Tensor) -> bool:
    return not tensor._is_tracked() or isinstance(tensor._gradient_edge(), LeafNode)


def check_made_outside(name: str, tensor: Tensor) -> None:
    """Refuse to modify, outside of inference mode, what was made in it."""
    if tensor._is_inference:
        raise InplaceError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed: {tensor._meta} was "
            "made in inference mode; clone() it first"
        )


def check_writable(op: Op, tensor: Tensor) -> None:
    """Refuse to modify what backward needs as it is, and outside of inference mode what was made in it."""
    check_made_outside(op.public, tensor)
    for candidate, what in ((tensor._base, "a view of a leaf Variable"), (tensor, "a leaf Variable")):
        if candidate is not None and tensor._is_tracked() and _is_leaf(candidate):
            raise InplaceError(
                f"{op.public}: {what} that requires grad is being used in an in-place operation; use no_grad() or "
                "detach() it first"
            )
    if tensor._base is not None and tensor._base._is_tracked() and not tensor._is_tracked():
        raise InplaceError(
            f"{op.public}: A view was created in no_grad mode and is being modified inplace with grad mode enabled: "
            "move both into the no_grad block if the modification is not to be recorded, or both out of it"
        )
    node = tensor._node
    if tensor._base is not None and isinstance(node, OperationNode) and node.name in _OF_SEVERAL_VIEWS:
        raise InplaceError(
            f"{op.public}: an output of {node.name} is a view and is being modified inplace. This view is the output "
            "of a function that returns multiple views. Such functions do not allow the output views to be modified "
            "inplace. clone() it, or use the operation that is not in place"
        )
