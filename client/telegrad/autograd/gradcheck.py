"""Comparison of derivatives with differences of values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ._gradcheck_rules import GradcheckError, check_dense, check_same_form, check_undefined, check_zeros
from ._levels import entered_level
from ._passes import grad
from ._products import vector_jacobian, zeros_like

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class _Measuring(threading.local):
    """Whether a function is called for its values alone, of which differences are taken."""

    is_on = False


_measuring = _Measuring()


@contextmanager
def _called(for_values: bool) -> Iterator[None]:
    """Record histories in this block, and say what a function is called for."""
    before, _measuring.is_on = _measuring.is_on, for_values
    try:
        with enable_grad():
            yield
    finally:
        _measuring.is_on = before


def gradcheck(
    func: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[Tensor],
    *,
    eps: float = 1e-06,
    atol: float = 1e-05,
    rtol: float = 0.001,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of ``func`` with central differences, elementwise; complex numbers count as two reals.

    Inputs that require a gradient should be of double precision. Raises GradcheckError, or returns False without
    ``raise_exception``; and OutputsChangeError where results have other forms for other inputs. With
    ``check_forward_ad`` tangents are compared too. ``fast_mode`` and the checks of batched derivatives change nothing.
    Of sparse tensors the stored elements are varied and compared.
    """
    func, inputs = _on_stored(func, inputs)
    try:
        if not (check_backward_ad or check_forward_ad):
            raise ArgumentError("gradcheck: one of check_forward_ad and check_backward_ad must be True")
        if check_backward_ad:
            _check(func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes)
            _check_rules(func, inputs, check_undefined_grad)
        if check_forward_ad:
            _check_forward(func, inputs, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _on_stored(func: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], Any]:
    """Return a function of the stored elements in place of one of sparse tensors, and its arguments."""
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if all(getattr(entry, "layout", strided) is strided for entry in given):
        return func, inputs
    on_stored: Any = import_module("telegrad._sparse.gradients").on_stored
    return on_stored(func, inputs)  # type: ignore[no-any-return]


def _check(
    func: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float, nondet_tol: float, checks_dtypes: bool
) -> None:
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = [place for place, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad]
    if not places:
        raise ArgumentError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    with _called(for_values=False):
        outputs = _outputs(func(*given))
    check_dense(outputs)
    sources = [given[place] for place in places]
    for number, output in enumerate(outputs):
        if not output.requires_grad:
            _refuse_dependence(func, given, places, number, eps, atol)
            continue
        analytical = _analytical(output, sources, checks_dtypes)
        again = _analytical(output, sources, False)
        for at, place in enumerate(places):
            if np.abs(analytical[at] - again[at]).max(initial=0) > nondet_tol:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient."
                )
            numerical = _numerical(func, given, place, number, eps, output)
            if analytical[at].size and not np.allclose(analytical[at], numerical, rtol, atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {place},\nnumerical:{numerical}\n"
                    f"analytical:{analytical[at]}\n"
                )


def _check_rules(func: Callable[..., Any], inputs: Any, without_gradients: bool) -> None:
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    sources = [value for value in given if isinstance(value, Tensor) and value.requires_grad]

    def outputs() -> list[Tensor]:
        with _called(for_values=False):
            return _outputs(func(*given))

    if not any([output.requires_grad for output in outputs()]):
        return
    check_zeros(outputs, sources)
    if without_gradients:
        check_undefined(outputs, sources)


def _check_forward(func: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float) -> None:
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = [place for place, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad]
    for place in places:
        for number, analytical in enumerate(_tangents(func, given, place)):
            numerical = _numerical(func, given, place, number, eps)
            if not np.allclose(analytical, numerical, rtol, atol):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {number} with respect to input {place},\n"
                    f"numerical:{numerical}\nanalytical:{analytical}\n"
                )


def _tangents(func: Callable[..., Any], given: tuple[Any, ...], place: int) -> list[Any]:
    """Return the Jacobian of each result by one input, column by column, as forward differentiation computes it."""
    columns = []
    for step in _steps(given[place].detach(), 1.0):
        with entered_level() as level:
            arguments = [value.detach() if isinstance(value, Tensor) else value for value in given]
            arguments[place] = level.dual(arguments[place], step)
            outputs = _outputs(func(*arguments))
            pairs = zip(level.tangents(outputs), outputs, strict=True)
            columns.append([_as_real(zeros_like(o.detach()) if tangent is None else tangent) for tangent, o in pairs])
    return [_table(list(lines), 0).T for lines in zip(*columns, strict=True)]


def _outputs(result: Any) -> list[Tensor]:
    values = [result] if isinstance(result, Tensor) else list(result)
    return [value for value in values if isinstance(value, Tensor) and value._meta.dtype.is_differentiable]


def _refuse_dependence(
    func: Callable[..., Any], given: tuple[Any, ...], places: list[int], number: int, eps: float, atol: float
) -> None:
    for place in places:
        if np.abs(_numerical(func, given, place, number, eps)).max(initial=0) > atol:
            raise GradcheckError(f"Numerical gradient for function expected to be zero: output {number}, input {place}")


def _as_real(tensor: Tensor) -> Tensor:
    """Return the elements in one row, complex ones as pairs of reals."""
    tensor = tensor.detach().resolve_conj() if tensor.is_complex() else tensor.detach()
    flat: Tensor = function("view_as_real")(tensor.contiguous()) if tensor.is_complex() else tensor
    return flat.reshape(-1)


def _steps(tensor: Tensor, scale: float) -> list[Tensor]:
    """Return tensors of this shape with one element each, or the imaginary part of one, of this size."""
    units = [scale, scale * 1j] if tensor.is_complex() else [scale]
    basis = function("eye")(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    return [basis[at].reshape(tensor.shape) * unit for at in range(tensor.numel()) for unit in units]


def _analytical(output: Tensor, sources: list[Tensor], checks_dtypes: bool) -> list[Any]:
    lines: list[list[Tensor]] = []
    for step in _steps(output.detach(), 1.0):
        gradients = vector_jacobian([output], sources, [step], False)
        for source, gradient in zip(sources, gradients, strict=True):
            if checks_dtypes and gradient.dtype is not source.dtype:
                raise GradcheckError(f"expected grad with the input's dtype {source.dtype}, but got {gradient.dtype}")
        lines.append([_as_real(gradient) for gradient in gradients])
    return [_table([line[at] for line in lines], _as_real(source).numel()) for at, source in enumerate(sources)]


def _table(lines: list[Tensor], width: int) -> Any:
    return function("stack")(lines).numpy() if lines else np.zeros((0, width))


def _numerical(
    func: Callable[..., Any], given: tuple[Any, ...], place: int, number: int, eps: float, output: Tensor | None = None
) -> Any:  # fmt: skip
    """Return the differences of a result by one input, which is changed itself: ``func`` may read it from elsewhere.

    They must have the form of ``output``, if that is given.
    """
    columns = []
    for step in _steps(given[place].detach(), eps):
        ahead, behind = (_moved(func, given, place, number, by) for by in (step, -step))
        if output is not None:
            check_same_form(output, ahead)
            check_same_form(output, behind)
        columns.append((_as_real(ahead) - _as_real(behind)) / (2 * eps))
    return _table(columns, 0).T


def _moved(func: Callable[..., Any], given: tuple[Any, ...], place: int, number: int, step: Tensor) -> Tensor:
    """Return a result where ``step`` is added to an input; sparse inputs are replaced, all others changed in place."""
    source: Any = given[place]
    layout: Any = source.layout
    if layout is not strided:
        moved = (source.detach() + step).requires_grad_()
        with _called(for_values=True):
            return _outputs(func(*given[:place], moved, *given[place + 1 :]))[number]
    before = source.detach().clone()
    try:
        source.data.copy_(before + step)
        with _called(for_values=True):
            return _outputs(func(*given))[number].detach().clone()
    finally:
        source.data.copy_(before)


def _differentiated(value: Any, requires_grad: bool) -> Any:
    """Return an argument that requires a gradient where it should; a dual number does not by itself."""
    return value.view_as(value).requires_grad_() if requires_grad and not value.requires_grad else value


def gradgradcheck(
    func: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    eps: float = 1e-06,
    atol: float = 1e-05,
    rtol: float = 0.001,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare the second derivatives of ``func`` with differences of its gradients, as ``gradcheck`` does the first.

    ``grad_outputs`` are the gradients that these are computed from, random ones by default.
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    with enable_grad():
        outputs = [output for output in _outputs(func(*given)) if output.requires_grad]
    if grad_outputs is None:
        vectors = [function("randn_like")(output.detach()).requires_grad_() for output in outputs]
    else:
        listed = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
        vectors = [vector for vector in listed if vector is not None]
    places = [place for place, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad]
    count, kept = len(given), list[int]()

    def gradients(*given_again: Any) -> tuple[Tensor, ...]:
        arguments = [_differentiated(value, place in places) for place, value in enumerate(given_again)]
        results = [output for output in _outputs(func(*arguments[:count])) if output.requires_grad]
        sources = [arguments[place] for place in places]
        if _measuring.is_on:  # without a graph nothing waits for what the gradients are
            values: Any = grad(results, sources, list(arguments[count:]), allow_unused=True, materialize_grads=True)
            return tuple([values[place] for place in kept])
        found: Any = grad(results, sources, list(arguments[count:]), create_graph=True, allow_unused=True)
        kept[:] = [place for place, gradient in enumerate(found) if gradient is not None]
        return tuple([found[place] for place in kept])

    return gradcheck(
        gradients, (*given, *vectors), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )  # fmt: skip
