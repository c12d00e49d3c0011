"""Derivatives of functions: Jacobians, Hessians, and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, ShapeError

from ._passes import grad
from ._products import jacobian_vector, rows, vector_jacobian

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(value: Any, what: str, name: str) -> tuple[bool, tuple[Tensor, ...]]:
    is_tuple = isinstance(value, tuple)
    values = value if is_tuple else (value,)
    for item in values:
        if not isinstance(item, Tensor):
            raise ArgumentTypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors, not {type(item).__name__}"
            )
    return is_tuple, values


def _inputs(values: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """Return inputs to differentiate by: with ``create_graph`` such as lead back to the given ones."""
    return [
        value.view_as(value) if create_graph and value.requires_grad else value.detach().requires_grad_()
        for value in values
    ]


def _vectors(v: Any, like: Sequence[Tensor], name: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise AutogradError(f"The vector v can only be None for {name} if there is one value with one element")
        return (like[0].detach().new_ones(like[0].shape),)
    _, vectors = _as_tuple(v, "v", name)
    if [tuple(a.shape) for a in vectors] != [tuple(b.shape) for b in like]:
        raise ShapeError(f"{name}: v does not have the shapes of what it is multiplied with")
    return vectors


def _packed(values: Sequence[Any], is_tuple: bool, create_graph: bool) -> Any:
    done = [value if create_graph else value.detach() for value in values]
    return tuple(done) if is_tuple else done[0]


def _check_strict(strict: bool, outputs: Sequence[Tensor], inputs: Sequence[Tensor], name: str) -> None:
    if not strict:
        return
    for number, output in enumerate(outputs):
        reached = grad(output.sum(), inputs, retain_graph=True, allow_unused=True) if output.requires_grad else [None]
        if any(gradient is None for gradient in reached):
            raise AutogradError(
                f"Output {number} of the user-provided function of {name} is independent of an input. This is not "
                "allowed in strict mode."
            )


def _call(func: Callable[..., Any], inputs: Sequence[Tensor], name: str) -> tuple[bool, tuple[Tensor, ...]]:
    return _as_tuple(func(*inputs), "outputs of the user-provided function", name)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of ``v`` with its Jacobian."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "vjp")
        own = _inputs(given, create_graph)
        outputs_tuple, outputs = _call(func, own, "vjp")
        _check_strict(strict, outputs, own, "vjp")
        products = vector_jacobian(outputs, own, _vectors(v, outputs, "vjp"), create_graph)
    return _packed(outputs, outputs_tuple, create_graph), _packed(products, is_tuple, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of its Jacobian with ``v``."""
    with enable_grad():
        _, given = _as_tuple(inputs, "inputs", "jvp")
        own = _inputs(given, create_graph)
        outputs_tuple, outputs = _call(func, own, "jvp")
        _check_strict(strict, outputs, own, "jvp")
        products = jacobian_vector(outputs, own, _vectors(v, given, "jvp"), create_graph)
    return _packed(outputs, outputs_tuple, create_graph), _packed(products, outputs_tuple, create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian: for each output and input a tensor of the shapes of both, one after the other.

    ``vectorize`` and ``strategy`` change nothing but what PyTorch would do: one pass is made for each element.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "jacobian")
        own = _inputs(given, create_graph)
        outputs_tuple, outputs = _call(func, own, "jacobian")
        _check_strict(strict, outputs, own, "jacobian")
        found = [_packed(rows(output, own, create_graph), is_tuple, create_graph) for output in outputs]
    return tuple(found) if outputs_tuple else found[0]


def _scalar(func: Callable[..., Any], inputs: Sequence[Tensor], name: str) -> Tensor:
    is_tuple, outputs = _call(func, inputs, name)
    if is_tuple or outputs[0].numel() != 1:
        raise AutogradError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outputs[0].reshape(())


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return the Hessian of a function of one element: for each pair of inputs a tensor of the shapes of both."""
    is_tuple, _ = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*own: Tensor) -> Any:
        return tuple(vector_jacobian([value := _scalar(func, own, "hessian")], own, [value.new_ones(())], True))

    found = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if is_tuple else found[0]


def _with_gradient(func: Callable[..., Any], own: Sequence[Tensor], name: str) -> tuple[Tensor, list[Tensor]]:
    output = _scalar(func, own, name)
    return output, vector_jacobian([output], own, [output.detach().new_ones(())], True)


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, of one element, and the product of ``v`` with its Hessian."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "vhp")
        own = _inputs(given, create_graph)
        output, gradients = _with_gradient(func, own, "vhp")
        _check_strict(strict, gradients, own, "vhp")
        products = vector_jacobian(gradients, own, _vectors(v, given, "vhp"), create_graph)
    return _packed([output], False, create_graph), _packed(products, is_tuple, create_graph)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, of one element, and the product of its Hessian with ``v``."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "hvp")
        own = _inputs(given, create_graph)
        output, gradients = _with_gradient(func, own, "hvp")
        _check_strict(strict, gradients, own, "hvp")
        products = jacobian_vector(gradients, own, _vectors(v, given, "hvp"), create_graph)
    return _packed([output], False, create_graph), _packed(products, is_tuple, create_graph)
