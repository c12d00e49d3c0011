"""Derivatives taken forwards: products of Jacobians with tangents, and Jacobians column by column."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import finalize

from telegrad._session.grad_mode import inference_mode, is_inference_mode_enabled
from telegrad._tensor.tensor import Tensor
from telegrad.autograd._columns import forward_jacobian
from telegrad.autograd._levels import Level, entered_level, tracked_alias
from telegrad.autograd._products import zeros_like
from telegrad_protocol.errors import ArgumentError, AutogradError, ShapeError

from ._derivatives import Places, all_released, check_real, chosen, edges_of, jacrev, split
from ._trees import leaves_of, mapped, with_leaves


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes outside of inference mode, which does not hold within derivatives."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_inference_mode_enabled():
            return function(*args, **kwargs)
        with inference_mode(False):
            return function(*args, **kwargs)

    return call


@_recorded
def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return ``func(*primals)``, and the product of its Jacobian with ``tangents``."""
    _check_tuples(primals, tangents)
    with entered_level(is_transform=True) as level:
        given = iter(_matching(primals, tangents))
        own = mapped(primals, lambda primal: level.dual(primal, next(given)))
        output, aux = split(func(*own), has_aux, "jvp")
        outputs = _tensors(output, "jvp")
        products = level.tangents(outputs)
        if strict and any(product is None for product in products):
            raise AutogradError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the input. This is not "
                "allowed in strict mode."
            )
        tangents_out = with_leaves(output, [_or_zeros(*pair) for pair in zip(products, outputs, strict=True)])
    results = (output, tangents_out, aux) if has_aux else (output, tangents_out)
    return all_released(results, level.nodes)


def _check_tuples(primals: Any, tangents: Any) -> None:
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple):
            raise AutogradError(
                f"jvp(f, primals, tangents): Expected {what} to be a tuple. E.g. it should be valid to call "
                "f(*primals)."
            )


def _matching(primals: Any, tangents: Any) -> list[Tensor]:
    """Return the tangents, one for each tensor among ``primals``."""
    inputs, vectors = _tensors(primals, "jvp"), _tensors(tangents, "jvp")
    if [tuple(vector.shape) for vector in vectors] != [tuple(primal.shape) for primal in inputs]:
        raise ShapeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure, and to be "
            "tensors of the same shapes"
        )
    return vectors


def _tensors(tree: Any, name: str) -> list[Tensor]:
    leaves = leaves_of(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ArgumentError(f"{name}: expected only tensors as inputs and results, not {type(leaf).__name__}")
    return leaves


def _or_zeros(product: Tensor | None, output: Tensor) -> Tensor:
    return zeros_like(output.detach()) if product is None else product


@_recorded
def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``func(*primals)``, and a function that multiplies the Jacobian there with its arguments.

    ``func`` is called once; what its derivative needs is kept as long as that function.
    """
    level = Level()
    try:
        own = mapped(primals, lambda primal: level.dual(primal, primal))
        output = func(*own)
        outputs = _tensors(output, "linearize")
        tracked = [tracked_alias(result) if result._is_tracked() else result for result in outputs]
    finally:
        level.leave()
    shown = all_released(output, level.nodes)

    @_recorded
    def product(*tangents: Any) -> Any:
        vectors = _matching(primals, tangents)
        products = level.products(tracked, vectors)
        results = [_or_zeros(*pair) for pair in zip(products, tracked, strict=True)]
        return all_released(with_leaves(output, results), level.nodes)

    finalize(product, level.drop)
    return shown, product


def jacfwd(
    func: Callable[..., Any], argnums: Places = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``func``: one product for each element of its arguments.
    ``func`` is called once, or also once for each element where it applies functions with a ``jvp`` of their own.
    """

    @_recorded
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        def call(own: list[Tensor]) -> tuple[list[Tensor], Any]:
            rest = iter(own)
            _, tree, arguments = chosen(args, argnums, "jacfwd", lambda _: next(rest))
            output, aux = split(func(*arguments, **kwargs), has_aux, "jacfwd")
            check_real("jacfwd", inputs, outputs := _tensors(output, "jacfwd"))
            return outputs, (tree, output, all_released(aux, edges_of(own)))

        inputs = leaves_of(chosen(args, argnums, "jacfwd", lambda value: value)[1])
        (tree, output, aux), blocks = forward_jacobian(call, inputs)
        places = iter(blocks)
        jacobian = mapped(output, lambda _: with_leaves(tree, next(places)))
        return (jacobian, aux) if has_aux else jacobian

    return wrapper


def hessian(func: Callable[..., Any], argnums: Places = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian of ``func``: the derivative, taken forwards, of its gradient."""
    return jacfwd(jacrev(func, argnums), argnums)
