"""Derivatives of functions of nested arguments. All are taken backwards; ``jvp`` is a derivative of a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad.autograd._products import depends_on_others, jacobian_vector, rows, vector_jacobian
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, ShapeError

from ._trees import leaves_of, mapped, with_leaves

Places = int | tuple[int, ...]


def _own(value: Any) -> Any:
    """Return a tensor to differentiate by, which leads back to the given one where that requires a gradient."""
    if not isinstance(value, Tensor):
        return value
    return value.view_as(value) if value.requires_grad else value.detach().requires_grad_()


def _chosen(args: tuple[Any, ...], argnums: Places, name: str) -> tuple[tuple[int, ...], Any, list[Any]]:
    """Return the places of the arguments to differentiate by, these in a structure, and all arguments."""
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for place in places:
        if not -len(args) <= place < len(args):
            raise ArgumentError(f"{name}: argnums={argnums} for {len(args)} positional arguments")
    places = tuple([place % len(args) for place in places])
    chosen = {place: mapped(args[place], _own) for place in places}
    tree = chosen[places[0]] if isinstance(argnums, int) else tuple([chosen[place] for place in places])
    for leaf in leaves_of(tree):
        if not isinstance(leaf, Tensor):
            raise ArgumentTypeError(f"{name}: expected tensors to differentiate by, not {type(leaf).__name__}")
    return places, tree, [chosen.get(place, argument) for place, argument in enumerate(args)]


def _without_history(tree: Any) -> Any:
    return mapped(tree, lambda value: value.detach() if isinstance(value, Tensor) else value)


def _split(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ArgumentTypeError(f"{name}: with has_aux the function must return a tuple of two")
    return result


def grad_and_value(
    func: Callable[..., Any], argnums: Places = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes the gradient of ``func``, whose result has one element, and the result."""

    def wrapper(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with enable_grad():
            _, tree, arguments = _chosen(args, argnums, "grad")
            value, aux = _split(func(*arguments, **kwargs), has_aux, "grad")
            if not isinstance(value, Tensor):
                raise ArgumentTypeError("grad: expected the function to return a tensor")
            if value.dim():
                raise ShapeError(f"grad: expected the function to return a scalar, not {value._meta}")
            own = leaves_of(tree)
            is_nested = depends_on_others([value], own)
            gradients = vector_jacobian([value], own, [value.detach().new_ones(())], is_nested)
        if not is_nested:
            value = value.detach()
            aux = _without_history(aux)
        found = with_leaves(tree, gradients)
        return (found, (value, aux)) if has_aux else (found, value)

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
    with enable_grad():
        own = mapped(primals, _own)
        output, aux = _split(func(*own), has_aux, "vjp")
    outputs, inputs = leaves_of(output), leaves_of(own)
    is_nested = depends_on_others(outputs, inputs)

    def product(*cotangents: Any, **_: Any) -> Any:
        vectors = leaves_of(cotangents)
        if len(vectors) != len(outputs):
            raise ArgumentError(f"vjp: {len(vectors)} cotangents for {len(outputs)} results")
        with enable_grad():
            records = is_nested or any(vector.requires_grad for vector in vectors)
            return with_leaves(own, vector_jacobian(outputs, inputs, vectors, records))

    shown = output if is_nested else _without_history(output)
    return (shown, product, _without_history(aux)) if has_aux else (shown, product)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return ``func(*primals)``, and the product of its Jacobian with ``tangents``."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise ArgumentTypeError("jvp: expected primals and tangents to be tuples")
    with enable_grad():
        own = mapped(primals, _own)
        output, aux = _split(func(*own), has_aux, "jvp")
        outputs, inputs, vectors = leaves_of(output), leaves_of(own), leaves_of(tangents)
        if [tuple(v.shape) for v in vectors] != [tuple(i.shape) for i in inputs]:
            raise ShapeError("jvp: tangents do not have the shapes of primals")
        if strict and not all(out.requires_grad for out in outputs):
            raise AutogradError("jvp: a result does not depend on the primals, which strict mode does not allow")
        is_nested = depends_on_others(outputs, inputs) or any(vector.requires_grad for vector in vectors)
        found = with_leaves(output, jacobian_vector(outputs, inputs, vectors, is_nested))
    shown = output if is_nested else _without_history(output)
    return (shown, found, _without_history(aux)) if has_aux else (shown, found)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``func(*primals)``, and a function that multiplies the Jacobian there with its arguments."""
    output = func(*primals)
    return output, lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func``: one pass for each element of its result."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with enable_grad():
            _, tree, arguments = _chosen(args, argnums, "jacrev")
            output, aux = _split(func(*arguments, **kwargs), has_aux, "jacrev")
            own = leaves_of(tree)
            is_nested = depends_on_others(leaves_of(output), own)
            found = mapped(output, lambda result: with_leaves(tree, rows(result, own, is_nested)))
        return (found, aux if is_nested else _without_history(aux)) if has_aux else found

    return wrapper


def jacfwd(
    func: Callable[..., Any], argnums: Places = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func``; it is computed as by ``jacrev``."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: Places = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian of ``func``."""
    return jacfwd(jacrev(func, argnums), argnums)
