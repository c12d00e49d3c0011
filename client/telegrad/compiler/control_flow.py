"""``torch.cond`` and ``torch.while_loop``: the program's Python decides, so a tensor that decides is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._batching.tensor import BatchedTensor
from telegrad._dispatch.fake_tensors import DataDependentOutputException
from telegrad._functions.creation import where
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError

from . import exporting
from .choices.gradients import with_all_gradients
from .function_operators.operators import FlatFunction, FunctionOperator, Outputs, tracing


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """Return ``true_fn(*operands)`` or ``false_fn(*operands)``, as the predicate says: a bool, or a tensor of one.

    Only the one that is chosen is called. A tensor is read for it, which waits for the server and is a graph break in a
    compiled function; ``torch.where`` waits for nothing. Where a tensor decides, results in floating point depend on
    all operands and on all tensors that either function names: gradients are zeros for those that were not used. In a
    module that is exported, where a tensor decides when the program runs, and in ``vmap``, where it decides for each
    element of the batch, both are computed, and what they return is selected. Raises ArgumentError for a predicate of
    several elements, for operands that are no tensors, and where both are computed for functions that return what
    cannot be selected of: other shapes, types or structures.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentError("cond: Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not _are_tensors(operands):
        raise ArgumentError(
            "cond: Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor "
            f"leaves, but got {operands}."
        )
    if isinstance(pred, Tensor) and tracing() is not None:
        return _traced_cond(pred, (true_fn, false_fn), operands)
    return _chosen(pred, true_fn, false_fn, operands)


def _chosen(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    if isinstance(pred, BatchedTensor) or (exporting.state.is_active and isinstance(pred, Tensor)):
        _require_one("cond", pred)
        return _selected(pred.reshape(()).bool(), true_fn(*operands), false_fn(*operands))
    chosen = is_true("cond", pred)
    made = (true_fn if chosen else false_fn)(*operands)
    return with_all_gradients(made, pred, chosen, (true_fn, false_fn), operands) if isinstance(pred, Tensor) else made


def _traced_cond(pred: Tensor, functions: tuple[Callable[..., Any], ...], operands: Sequence[Any]) -> Any:
    leaves, structure = tree_flatten(list(operands))
    flat = [FlatFunction(_of_leaves(function, structure)) for function in functions]
    results = cond_operator(pred, *flat, tuple(leaves))
    if flat[0].returned != flat[1].returned:
        raise ArgumentError(f"cond: true_fn returns {flat[0].returned} and false_fn {flat[1].returned}")
    return tree_unflatten(list(results), flat[0].returned)


def _of_leaves(function: Callable[..., Any], structure: Any) -> Callable[..., Any]:
    return lambda *leaves: function(*tree_unflatten(list(leaves), structure))


def _results_of_cond(args: Sequence[Any], outputs: Outputs) -> Sequence[Any]:
    """Return what the function that is chosen has returned; what the first one has where nothing can be read."""
    require_same("cond", "the results of true_fn and false_fn", list(outputs[0]), list(outputs[1]))
    try:
        return outputs[0 if is_true("cond", args[0]) else 1]
    except DataDependentOutputException:
        return outputs[0]


def _are_tensors(tree: Any) -> bool:
    return all([isinstance(leaf, Tensor) for leaf in tree_flatten(tree)[0]])


def _selected(pred: Tensor, chosen: Any, other: Any) -> Any:
    """Return what two functions have returned, each tensor selected as the predicate will be found to be."""
    mine, structure = tree_flatten(chosen)
    theirs, other_structure = tree_flatten(other)
    if structure != other_structure:
        raise ArgumentError(f"cond: true_fn returns {structure} and false_fn {other_structure}")
    return tree_unflatten([_selected_of(pred, a, b) for a, b in zip(mine, theirs, strict=True)], structure)


def _selected_of(pred: Tensor, chosen: Any, other: Any) -> Any:
    if isinstance(chosen, Tensor) and isinstance(other, Tensor):
        if (chosen.shape, chosen.dtype) != (other.shape, other.dtype):
            raise ArgumentError(
                f"cond: true_fn returns {chosen._meta} and false_fn {other._meta}; a program selects one of both, so "
                "their shapes and types must be the same"
            )
        return where(pred, chosen, other)
    if type(chosen) is type(other) and chosen == other:
        return chosen
    raise ArgumentError(f"cond: true_fn returns {chosen!r} and false_fn {other!r}, which a program cannot select of")


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """Call ``body_fn`` on what it returned, at first on ``carried_inputs``, while ``cond_fn`` of the same says so.

    Returns what ``body_fn`` returned last, or the inputs, in the kind of sequence that the inputs are. Each iteration
    reads what ``cond_fn`` returns if that is a tensor. Raises ArgumentError where ``body_fn`` returns another number of
    values than it takes, or a tensor of another shape, type or device.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentError("while_loop: Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentError(
            f"while_loop: Expect carried_inputs to be a tuple or a list, but got {type(carried_inputs)}."
        )
    carried = tuple(carried_inputs)
    if tracing() is not None:
        results = _traced_loop(cond_fn, body_fn, carried)
    else:
        results = _looped(cond_fn, body_fn, carried, ())
    return list(results) if isinstance(carried_inputs, list) else results


def _traced_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves, structure = tree_flatten(carried)
    if not _are_tensors(carried):
        raise ArgumentError("while_loop: a trace carries tensors alone; make tensors of the numbers")

    def of_leaves(function: Callable[..., Any]) -> Callable[..., Any]:
        return _of_leaves(function, structure)

    results = loop_operator(of_leaves(cond_fn), FlatFunction(of_leaves(body_fn)), tuple(leaves))
    return tree_unflatten(list(results), structure)  # type: ignore[no-any-return]


def _results_of_loop(args: Sequence[Any], outputs: Outputs) -> Sequence[Any]:
    """Return what the loop computes; what its body returns first where nothing can be read."""
    require_same("while_loop", "body_fn_output and carried_inputs", list(outputs[1]), list(args[2]))
    try:
        return _looped(*args)
    except DataDependentOutputException:
        return outputs[1]


def _looped(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...], additional: Sequence[Any]
) -> tuple[Any, ...]:
    while is_true("while_loop", cond_fn(*carried, *additional)):
        made = body_fn(*carried, *additional)
        returned = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(returned) != len(carried):
            raise ArgumentError(f"while_loop: body_fn takes {len(carried)} values and has returned {len(returned)}")
        require_same("while_loop", "body_fn_output and carried_inputs", returned, carried)
        carried = returned
    return carried


def require_same(
    name: str, compared: str, made: Any, wanted: Any, attributes: Sequence[str] = ("shape", "dtype", "device")
) -> None:  # fmt: skip
    """Raise ArgumentError where trees have other structures, or tensors that differ in these attributes."""
    mine, structure = tree_flatten(made)
    theirs, wanted_structure = tree_flatten(wanted)
    if structure != wanted_structure:
        raise ArgumentError(
            f"{name}: Expected {compared} to have same structure but got {structure} and {wanted_structure}"
        )
    differences = [
        f"pair[{place}] differ in '{attribute}: {getattr(one, attribute)} vs {getattr(other, attribute)}'"
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True))
        if isinstance(one, Tensor) and isinstance(other, Tensor)
        for attribute in attributes
        if getattr(one, attribute) != getattr(other, attribute)
    ]
    if differences:
        raise ArgumentError(f"{name}: Expected {compared} to have same metadata but found:\n" + "\n".join(differences))


def is_true(name: str, pred: Any) -> bool:
    """Return what the predicate of the function ``name`` says, whose element is read if it is a tensor."""
    if isinstance(pred, Tensor):
        _require_one(name, pred)
        return bool(pred)
    if not isinstance(pred, (bool, int, float)):
        raise ArgumentError(f"{name}: Expected pred to be bool or tensor, but got {pred}.")
    return bool(pred)


def _require_one(name: str, pred: Tensor) -> None:
    if pred.numel() != 1:
        raise ArgumentError(
            f"{name}: Expected pred to be bool or single-element tensor, but got one of shape {tuple(pred.shape)}."
        )


cond_operator: Final = FunctionOperator(
    "cond", _chosen, lambda operands: [operands, operands], ["true_graph", "false_graph"], 1, 1, _results_of_cond
)
loop_operator: Final = FunctionOperator(
    "while_loop", _looped, lambda carried, additional: [[*carried, *additional]] * 2,
    ["while_loop_cond_graph", "while_loop_body_graph"], 2, traced=_results_of_loop,
)  # fmt: skip
