"""Derivatives of functions of nested arguments. All are taken backwards."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from telegrad._batching.tensor import batched_everywhere
from telegrad._ops.batching import differentiating
from telegrad._ops.duals import duals
from telegrad._session.grad_mode import inference_mode, is_grad_enabled
from telegrad._tensor.autograd_graph import GradientEdge
from telegrad._tensor.tensor import Tensor
from telegrad.autograd._products import depends_on_others, released, rows, vector_jacobian
from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError

from ._trees import leaves_of, mapped, with_leaves

Places = int | tuple[int, ...]


def _own(value: Any) -> Any:
    """Return a tensor to differentiate by, which leads back to the given one where that is part of a graph."""
    if not isinstance(value, Tensor):
        return value
    value = batched_everywhere(value)  # each element of a batch has a gradient of its own
    if value.is_inference():
        return value.clone().requires_grad_()
    return (value.view_as(value) if value._is_tracked() else value.detach()).requires_grad_()


def chosen(
    args: tuple[Any, ...], argnums: Places, name: str, own: Callable[[Any], Any] = _own
) -> tuple[tuple[int, ...], Any, list[Any]]:
    """Return the places of the arguments to differentiate by, these in a structure, and all arguments."""
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not places:
        raise ArgumentError(f"{name}: argnums must be non-empty")
    for place in places:
        if not isinstance(place, int):
            raise ArgumentError(f"{name}: argnums must be int or Tuple[int, ...], got {argnums!r}")
        if not -len(args) <= place < len(args):
            raise ArgumentError(f"{name}: argnums={argnums} for {len(args)} positional arguments")
    places = tuple([place % len(args) for place in places])
    chosen = {place: mapped(args[place], own) for place in places}
    tree = chosen[places[0]] if isinstance(argnums, int) else tuple([chosen[place] for place in places])
    for leaf in leaves_of(tree):
        if not isinstance(leaf, Tensor):
            raise ArgumentError(f"{name}: Thing passed to transform API must be Tensor, not {type(leaf).__name__}")
    return places, tree, [chosen.get(place, argument) for place, argument in enumerate(args)]


def all_released(tree: Any, own: Collection[GradientEdge]) -> Any:
    """Return results without the history that leads to ``own`` alone, and where none is recorded without any."""
    forgets = not is_grad_enabled() and not duals.levels  # tangents follow from the history, whatever the mode
    return mapped(tree, lambda value: _released(value, own, forgets) if isinstance(value, Tensor) else value)


def _released(value: Tensor, own: Collection[GradientEdge], forgets: bool) -> Tensor:
    return value.detach() if forgets and value._is_tracked() and not value.is_leaf else released(value, own)


def split(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """Return the results to differentiate, and what a function with ``has_aux`` returns beside them."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise AutogradError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True, not "
            f"{type(result).__name__}"
        )
    return result


def edges_of(tensors: list[Any]) -> set[GradientEdge]:
    """Return the places of tensors in the graph."""
    return {tensor._gradient_edge() for tensor in tensors}


def grad_and_value(
    func: Callable[..., Any], argnums: Places = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes the gradient of ``func``, whose result has one element, and the result."""

    def wrapper(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with inference_mode(False), differentiating():
            _, tree, arguments = chosen(args, argnums, "grad")
            value, aux = split(func(*arguments, **kwargs), has_aux, "grad")
            if not isinstance(value, Tensor):
                raise ArgumentError(f"grad: Expected f(*args) to return a Tensor, got {type(value).__name__}")
            if value.dim():
                raise ShapeError(f"grad: expected the function to return a scalar, not {value._meta}")
            if value.is_complex():
                raise AutogradError(
                    f"grad can be implicitly created only for real scalar outputs but got {value._meta}"
                )
            own = leaves_of(tree)
            is_nested = depends_on_others([value], own)
            gradients = vector_jacobian([value], own, [value.detach().new_ones(())], is_nested)
        found = with_leaves(tree, gradients)
        results = (found, (value, aux)) if has_aux else (found, value)
        return all_released(results, edges_of(own))  # type: ignore[no-any-return]

    return wrapper


def grad(func: Callable[..., Any], argnums: Places = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``func``, whose result has one element."""
    both = grad_and_value(func, argnums, has_aux)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``func(*primals)``, and a function that multiplies its argument with the Jacobian."""
    with inference_mode(False), differentiating():
        own = mapped(primals, _own)
        output, aux = split(func(*own), has_aux, "vjp")
    outputs, inputs = leaves_of(output), leaves_of(own)
    _check_differentiable(outputs)
    is_nested = depends_on_others(outputs, inputs)

    def product(*cotangents: Any, **_: Any) -> Any:
        vectors = leaves_of(cotangents)
        if len(vectors) != len(outputs):
            raise ArgumentError(f"vjp: {len(vectors)} cotangents for {len(outputs)} results")
        with inference_mode(False):
            records = is_nested or any(vector.requires_grad for vector in vectors)
            products = vector_jacobian(outputs, inputs, vectors, records)
        return all_released(with_leaves(own, products), edges)

    edges = edges_of(inputs)
    shown = all_released((output, aux), edges)
    return (shown[0], product, shown[1]) if has_aux else (shown[0], product)


def _check_differentiable(outputs: list[Any]) -> None:
    for output in outputs:
        if not isinstance(output, Tensor):
            raise ArgumentError(
                f"vjp(f, *primals): expected f(*primals) to return only tensors, got unsupported type {type(output)}"
            )
        if not output.dtype.is_differentiable:
            raise AutogradError(
                f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got {output._meta}"
            )


def check_real(name: str, inputs: list[Any], outputs: list[Any]) -> None:
    """Refuse complex tensors, whose Jacobians are matrices of another kind."""
    for what, tensors in (("inputs", inputs), ("outputs", outputs)):
        for number, tensor in enumerate(tensors):
            if tensor.is_complex():
                raise AutogradError(
                    f"{name}: Expected all {what} to be real but received complex tensor at flattened {what[:-1]} "
                    f"idx: {number}; differentiate view_as_real() of it"
                )


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func``: one pass for a batch of all elements of its result.

    With ``chunk_size`` so many elements are a batch.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"jacrev: `chunk_size` should be greater than 0, got {chunk_size}")

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with inference_mode(False), differentiating():
            _, tree, arguments = chosen(args, argnums, "jacrev")
            output, aux = split(func(*arguments, **kwargs), has_aux, "jacrev")
            own = leaves_of(tree)
            _check_differentiable(leaves_of(output))
            check_real("jacrev", own, leaves_of(output))
            is_nested = depends_on_others(leaves_of(output), own)
            found = mapped(output, lambda result: with_leaves(tree, rows(result, own, is_nested, chunk_size)))
        return all_released((found, aux) if has_aux else found, edges_of(own))

    return wrapper
