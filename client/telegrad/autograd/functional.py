"""Derivatives of functions: Jacobians, Hessians, and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, NotSupportedError, ShapeError

from ._columns import forward_jacobian
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


def _grad_preprocess(inputs: Sequence[Tensor], create_graph: bool, need_graph: bool) -> tuple[Tensor, ...]:
    """Return inputs to differentiate by: with ``create_graph`` such as lead back to the given ones."""
    return tuple([
        value.view_as(value) if create_graph and value.requires_grad else value.detach().requires_grad_(need_graph)
        for value in inputs
    ])  # fmt: skip


def _vectors(v: Any, like: Sequence[Tensor], name: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            whose = (
                "the user-provided function returns" if name == "vjp" else "the input to the user-provided function is"
            )
            raise AutogradError(f"The vector v can only be None if {whose} a single Tensor with a single element.")
        return (like[0].detach().new_ones(like[0].shape),)
    _, vectors = _as_tuple(v, "v", name)
    if len(vectors) != len(like):
        raise AutogradError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}.")
    for vector, other in zip(vectors, like, strict=True):
        if vector._meta.shape != other._meta.shape:
            raise ShapeError(f"v has invalid size: should be {other.shape} but got {vector.shape}.")
    return vectors


def _packed(values: Sequence[Any], is_tuple: bool, create_graph: bool) -> Any:
    done = [value if create_graph else value.detach() for value in values]
    return tuple(done) if is_tuple else done[0]


def _check_strict(outputs: Sequence[Tensor], inputs: Sequence[Tensor], name: str) -> None:
    for number, output in enumerate(outputs):
        reached = grad(output.sum(), inputs, retain_graph=True, allow_unused=True) if output.requires_grad else [None]
        if any(gradient is None for gradient in reached):
            raise AutogradError(
                f"Output {number} of the user-provided function of {name} is independent of an input. This is not "
                "allowed in strict mode."
            )


def _call(func: Callable[..., Any], inputs: Sequence[Tensor], name: str) -> tuple[bool, tuple[Tensor, ...]]:
    return _as_tuple(func(*inputs), "outputs of the user-provided function", name)


def _scalar(func: Callable[..., Any], inputs: Sequence[Tensor], name: str) -> Tensor:
    is_tuple, outputs = _call(func, inputs, name)
    if is_tuple or outputs[0].numel() != 1:
        raise AutogradError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outputs[0].reshape(())


_Product = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], bool], list[Tensor]]


def _multiplied(
    name: str, func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, product: _Product
) -> tuple[Any, Any]:
    """Return the results of a function, and the product of ``v`` with its Jacobian, or with that of its gradient."""
    with enable_grad():
        inputs_tuple, given = _as_tuple(inputs, "inputs", name)
        own = _grad_preprocess(given, create_graph, True)
        if name in ("vhp", "hvp"):
            outputs_tuple, outputs = False, [_scalar(func, own, name)]
            values: Sequence[Tensor] = vector_jacobian(outputs, own, [outputs[0].detach().new_ones(())], True)
        else:
            outputs_tuple, values = _call(func, own, name)
            outputs = list(values)
        if strict:
            _check_strict(values, own, name)
        products = product(values, own, _vectors(v, outputs if name == "vjp" else given, name), create_graph)
    products_tuple = outputs_tuple if name == "jvp" else inputs_tuple
    return _packed(outputs, outputs_tuple, create_graph), _packed(products, products_tuple, create_graph)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of ``v`` with its Jacobian."""
    return _multiplied("vjp", func, inputs, v, create_graph, strict, vector_jacobian)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, and the product of its Jacobian with ``v``, by a derivative of the derivative."""
    return _multiplied("jvp", func, inputs, v, create_graph, strict, jacobian_vector)


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, of one element, and the product of ``v`` with its Hessian."""
    return _multiplied("vhp", func, inputs, v, create_graph, strict, vector_jacobian)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return ``func(*inputs)``, of one element, and the product of its Hessian with ``v``."""
    return _multiplied("hvp", func, inputs, v, create_graph, strict, jacobian_vector)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return the Jacobian: for each output and input a tensor of the shapes of both, one after the other.

    With ``strategy="forward-mode"`` tangents of the inputs are multiplied with it, one for each of their elements; else
    a pass is made for each element of the outputs. ``vectorize`` changes nothing.
    """
    _check_strategy(strategy, create_graph, strict, vectorize)
    if strategy == "forward-mode":
        return _forward(func, inputs)
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs", "jacobian")
        own = _grad_preprocess(given, create_graph, True)
        outputs_tuple, outputs = _call(func, own, "jacobian")
        if strict:
            _check_strict(outputs, own, "jacobian")
        found = [_packed(rows(output, own, create_graph), is_tuple, create_graph) for output in outputs]
    return tuple(found) if outputs_tuple else found[0]


def _check_strategy(strategy: str, create_graph: bool, strict: bool, vectorize: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    if strict and (vectorize or strategy == "forward-mode"):
        raise AutogradError(
            "jacobian: `strict=True` is not supported together with `vectorize=True` or the forward-mode strategy; "
            "leave it out"
        )
    if strategy == "forward-mode" and create_graph:
        raise NotSupportedError(
            'jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together; use '
            "telegrad.func.jacfwd"
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotSupportedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
            "`vectorize=True`."
        )


def _forward(func: Callable[..., Any], inputs: Any) -> Any:
    is_tuple, given = _as_tuple(inputs, "inputs", "jacobian")

    def call(own: list[Tensor]) -> tuple[tuple[Tensor, ...], bool]:
        outputs_tuple, outputs = _call(func, own, "jacobian")
        return outputs, outputs_tuple

    outputs_tuple, blocks = forward_jacobian(call, [tensor.detach() for tensor in given])
    found = [_packed(row, is_tuple, False) for row in blocks]
    return tuple(found) if outputs_tuple else found[0]


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

    def gradient(*given: Tensor) -> Any:
        with enable_grad():
            own = [tensor if tensor.requires_grad else tensor.view_as(tensor).requires_grad_() for tensor in given]
            value = _scalar(func, own, "hessian")
            return tuple(vector_jacobian([value], own, [value.new_ones(())], True))

    found = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if is_tuple else found[0]


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """Take results out of the tuples that were put around them: of both levels, where ``to_unpack`` says so of both."""
    outer, inner = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    results = res if inner else tuple([part[0] for part in res])
    return results if outer else results[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Return tensors, or tuples of them, without their history unless ``create_graph`` asks for it."""
    if not isinstance(inputs[0], Tensor):
        return tuple([_grad_postprocess(part, create_graph) for part in inputs])
    return inputs if create_graph else tuple([part.detach() for part in inputs])


def _construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """Return for each tensor its columns of the identity of as many rows as all of them have elements."""
    rows, ends = sum(tensor_numels), [sum(tensor_numels[: place + 1]) for place in range(len(tensor_numels))]
    return tuple([
        function("eye")(rows, dtype=tensor.dtype, device=tensor.device)[:, end - count : end]
        for tensor, count, end in zip(tensors, tensor_numels, ends, strict=True)
    ])  # fmt: skip
