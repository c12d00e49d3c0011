"""Special functions where the operator database does not look: the GPU's own Airy function, orders, methods, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

from server.engine.array_library.bessel_functions.airy import airy_by_quadrature
from server.engine.array_library.bessel_functions.bessel import scaled
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .adapters import EngineAdapter
from .harness import Comparison


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def test_the_airy_function_of_gpus_agrees_with_scipy() -> None:
    points = np.linspace(-60, 60, 4001)
    expected = scipy.special.airy(points)[0]
    scale = np.where(points < 0, 1.0, np.maximum(expected, 1e-300))  # relative where the function decays
    with np.errstate(divide="ignore"):
        error = np.abs(airy_by_quadrature(np, points) - expected) / scale
    assert error.max() < 2e-13, points[error.argmax()]


@pytest.mark.parametrize("n", range(5))
def test_polygamma_takes_the_order_first_as_a_function(adapter: EngineAdapter, n: int) -> None:
    points = torch.linspace(0.3, 4, 20, dtype=torch.float64, requires_grad=True)
    Comparison(adapter).run(torch.polygamma, adapter.functional.polygamma, (n, points), {})


def test_a_negative_order_of_polygamma_is_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(ArgumentError, match="must not be negative"):
        adapter.functional.polygamma(-1, adapter.tensor(torch.ones(2)))


KINDS = ("t", "u", "v", "w")
POLYNOMIALS = [*(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in KINDS),
               "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
               "legendre_polynomial_p"]  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_any_degree_agree_with_pytorch(adapter: EngineAdapter, name: str) -> None:
    points = torch.tensor([-1.5, -1.0, -0.7, 0.0, 0.3, 0.9, 1.0, 1.2], dtype=torch.float64).reshape(-1, 1)
    degrees = torch.tensor([-3.0, 0.0, 1.0, 2.0, 2.7, 5.0, 9.0, 40.0, 90.0], dtype=torch.float64)
    theirs, ours = getattr(torch.special, name), adapter.function(f"special_{name}")
    for given in (degrees, degrees[:-2]):
        expected = theirs(points, given)
        size = expected.abs().amax(dim=0).clamp(min=1)
        mine = torch.from_numpy(adapter.numpy(ours(*_tensors(adapter, points, given))))
        torch.testing.assert_close(mine / size, expected / size, rtol=1e-9, atol=1e-11)


def _tensors(adapter: EngineAdapter, *operands: Any) -> list[Any]:
    return [adapter.tensor(operand) if isinstance(operand, torch.Tensor) else operand for operand in operands]


def test_a_degree_that_would_take_for_ever_is_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(ArgumentError, match="degree 100000000 is too high"):
        adapter.functional.special_legendre_polynomial_p(adapter.tensor(torch.ones(2)), 10**8)


FIRST_DERIVATIVES = {
    "bessel_j0": lambda x: -scipy.special.j1(x), "bessel_j1": lambda x: scipy.special.jvp(1, x),
    "bessel_y0": lambda x: -scipy.special.y1(x), "bessel_y1": lambda x: scipy.special.yvp(1, x),
    "modified_bessel_i0": lambda x: scipy.special.i1(x), "modified_bessel_i1": lambda x: scipy.special.ivp(1, x),
    "modified_bessel_k0": lambda x: -scipy.special.k1(x), "modified_bessel_k1": lambda x: scipy.special.kvp(1, x),
    "scaled_modified_bessel_k0": lambda x: scipy.special.k0e(x) - scipy.special.k1e(x),
    "scaled_modified_bessel_k1": lambda x: scipy.special.k1e(x) + np.exp(x) * scipy.special.kvp(1, x),
    "spherical_bessel_j0": lambda x: scipy.special.spherical_jn(0, x, derivative=True),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_DERIVATIVES)
def test_bessel_functions_have_derivatives_which_pytorch_lacks(adapter: EngineAdapter, name: str) -> None:
    points = torch.linspace(0.2, 6, 30, dtype=torch.float64)
    mine = adapter.tensor(points, requires_grad=True)
    result = adapter.function(f"special_{name}")(mine)
    (grad,) = adapter.grad([result], [adapter.tensor(torch.ones(30, dtype=torch.float64))], [mine], False)
    np.testing.assert_allclose(adapter.numpy(grad), FIRST_DERIVATIVES[name](points.numpy()), rtol=1e-9, atol=1e-12)


def test_what_has_no_derivative_says_so(adapter: EngineAdapter) -> None:
    order = adapter.tensor(torch.ones(2), requires_grad=True)
    result = adapter.functional.igamma(order, adapter.tensor(torch.ones(2)))
    with pytest.raises(NotSupportedError, match="igamma: the derivative with respect to input"):
        adapter.grad([result], [adapter.tensor(torch.ones(2))], [order], False)


@pytest.mark.parametrize("name", ["i0e", "i1e", "k0e", "k1e"])
def test_the_scaled_bessel_functions_of_gpus_agree_with_scipy(name: str) -> None:
    far = np.geomspace(1e-8, 1e6, 2001)
    points = np.concatenate([far, -far, [499.9, 500.0, 500.1, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e300]])
    with np.errstate(all="ignore"):
        found, expected = scaled(np, name, points), getattr(scipy.special, name)(points)
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_agree_with_pytorch_in_the_limits(adapter: EngineAdapter, name: str) -> None:
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("inf"), -float("inf"), float("nan")])
    pair = [part.reshape(-1) for part in torch.meshgrid(edges, edges, indexing="ij")]
    Comparison(adapter).run(getattr(torch, name), adapter.function(name), pair, {}, gradients=False)
