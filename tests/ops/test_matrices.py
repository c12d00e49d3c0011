"""Linear algebra where the operator database does not look: older names, errors, singular matrices, sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, LinearAlgebraError, NotSupportedError, ShapeError, TelegradError

from .adapters import EngineAdapter
from .harness import Comparison


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _matrices(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


OLDER: dict[str, tuple[Any, ...]] = {
    "det": (_matrices(3, 4, 4),), "slogdet": (_matrices(2, 3, 3),), "inverse": (_matrices(2, 3, 3),),
    "matrix_power": (_matrices(3, 3), 5), "nuclear_norm": (_matrices(3, 4),), "logdet": (_matrices(4, 4),),
    "frobenius_norm": (_matrices(3, 4, 5), (1, 2)), "pinverse": (_matrices(4, 3),),
    "linalg.matmul": (_matrices(2, 3, 4), _matrices(4, 5)), "linalg.matrix_exp": (_matrices(3, 3),),
    "cholesky_solve": (_matrices(3, 2), torch.eye(3, dtype=torch.float64) * 2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*(nuclear|frobenius)_norm is deprecated:UserWarning")
@pytest.mark.parametrize("name", OLDER)
def test_functions_that_the_database_lacks_agree_with_pytorch(adapter: EngineAdapter, name: str) -> None:
    theirs = getattr(torch.linalg, name.split(".")[1]) if "." in name else getattr(torch, name)
    Comparison(adapter, check_strides=False, sums=True).run(
        theirs, adapter.function(name.replace(".", "_")), OLDER[name], {}
    )


def test_descending_powers_are_the_default_of_vander(adapter: EngineAdapter) -> None:
    for count in (None, 0, 1, 4):
        mine = adapter.functional.vander(adapter.tensor(torch.arange(3)), count)
        np.testing.assert_array_equal(adapter.numpy(mine), torch.vander(torch.arange(3), count).numpy())


def test_a_complete_orthogonal_matrix_is_the_product_of_reflectors(adapter: EngineAdapter) -> None:
    a = _matrices(5, 3).detach()
    factor, tau = torch.geqrf(a)
    mine = adapter.functional.orgqr(adapter.tensor(factor), adapter.tensor(tau))
    np.testing.assert_allclose(adapter.numpy(mine), torch.orgqr(factor, tau).numpy(), atol=1e-12)


SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
NAN = torch.full((2, 2), float("nan"))
FAILURES: list[tuple[str, tuple[torch.Tensor, ...], str]] = [
    ("linalg_cholesky", (INDEFINITE,), r"linalg.cholesky: .*\(the leading minor of order 2 is not positive-definite\)"),
    ("linalg_inv", (SINGULAR,), r"linalg.inv: The diagonal element 2 is zero"),
    ("linalg_solve", (SINGULAR, SINGULAR), "linalg.solve: The solver failed because the input matrix is singular"),
    ("linalg_lu_factor", (SINGULAR,), r"U\[2,2\] is zero"),
    ("linalg_svd", (NAN,), "linalg.svd: .* non-finite values"),
    ("linalg_svdvals", (NAN,), "linalg.svdvals: .* non-finite values"),
    ("linalg_eigh", (NAN,), "linalg.eigh: The algorithm failed to converge"),
    ("linalg_eig", (NAN,), "linalg.eig: input tensor should not contain infs or NaNs"),
    ("linalg_eigvals", (NAN,), "linalg.eigvals: input tensor should not contain infs or NaNs"),
]


@pytest.mark.parametrize(("name", "operands", "message"), FAILURES, ids=[failure[0] for failure in FAILURES])
def test_a_matrix_that_cannot_be_factorized_says_why(
    adapter: EngineAdapter, name: str, operands: tuple[torch.Tensor, ...], message: str
) -> None:
    with pytest.raises(LinearAlgebraError, match=message):
        adapter.function(name)(*map(adapter.tensor, operands))


def test_the_number_of_the_matrix_that_failed_is_told(adapter: EngineAdapter) -> None:
    batch = adapter.tensor(torch.stack([torch.eye(2), INDEFINITE]))
    with pytest.raises(LinearAlgebraError, match=r"\(Batch element 1\)"):
        adapter.functional.linalg_cholesky(batch)
    _, info = adapter.functional.linalg_cholesky_ex(batch)
    assert adapter.numpy(info).tolist() == [0, 2]
    with pytest.raises(LinearAlgebraError, match="singular"):
        adapter.functional.linalg_inv_ex(adapter.tensor(SINGULAR), check_errors=True)


def test_what_has_no_derivative_says_so(adapter: EngineAdapter) -> None:
    mine = adapter.tensor(_matrices(4, 3), requires_grad=True)
    for mode in ("r", "complete"):
        with pytest.raises(NotSupportedError, match=f"not implemented for mode='{mode}'"):
            _, r = adapter.functional.linalg_qr(mine, mode)
            adapter.grad([r], [adapter.tensor(torch.ones(*r.shape, dtype=torch.float64))], [mine], False)
    with pytest.raises(NotSupportedError, match="LU without pivoting"):
        adapter.functional.linalg_lu_factor(mine, pivot=False)


def test_arguments_that_do_not_fit_are_refused(adapter: EngineAdapter) -> None:
    F, a = adapter.functional, adapter.tensor(torch.ones(3, 4))
    refused: list[tuple[Any, type[TelegradError], str]] = [
        (lambda: F.linalg_inv(a), ShapeError, "linalg.inv: A must be batches of square matrices"),
        (lambda: F.linalg_qr(a, "full"), ArgumentError, "mode must be"),
        (lambda: F.linalg_eigh(adapter.tensor(torch.eye(2)), "X"), ArgumentError, "UPLO must be 'L' or 'U'"),
        (lambda: F.linalg_svd(a, driver="gesvd"), ArgumentError, "driver is only for CUDA"),
        (lambda: F.linalg_lstsq(a, a, driver="qr"), ArgumentError, "should be one of gels, gelsy, gelsd, gelss"),
        (lambda: F.linalg_multi_dot([a]), ShapeError, "at least 2 tensors"),
        (lambda: F.linalg_matrix_norm(a, 3), ArgumentError, "order 3 is not supported"),
    ]
    for call, kind, message in refused:
        with pytest.raises(kind, match=message):
            call()


def test_the_gradient_of_a_singular_determinant_is_the_matrix_of_cofactors(adapter: EngineAdapter) -> None:
    cofactors = [[4.0, -2.0], [-2.0, 1.0]], np.diag([0.0, 0.0, 6.0])  # PyTorch's gradient of the first is 0
    singular = SINGULAR.double(), torch.diag(torch.tensor([2.0, 3.0, 0.0], dtype=torch.float64))
    for matrix, expected in zip(singular, cofactors, strict=True):
        mine = adapter.tensor(matrix, requires_grad=True)
        (grad,) = adapter.grad(
            [adapter.functional.linalg_det(mine)], [adapter.tensor(torch.tensor(1.0).double())], [mine], False
        )
        np.testing.assert_allclose(adapter.numpy(grad), expected, atol=1e-9)


def test_repeated_values_do_not_spoil_gradients_of_values(adapter: EngineAdapter) -> None:
    for name in ("linalg_svdvals", "linalg_eigvalsh"):
        mine = adapter.tensor(torch.eye(3, dtype=torch.float64), requires_grad=True)
        values = adapter.function(name)(mine)
        (grad,) = adapter.grad([values], [adapter.tensor(torch.ones(3, dtype=torch.float64))], [mine], False)
        np.testing.assert_allclose(adapter.numpy(grad), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_exponentials_of_small_and_large_matrices_agree_with_pytorch(
    adapter: EngineAdapter, scale: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    given = torch.randn(4, 6, 6, dtype=dtype) * scale * torch.tensor([1.0, 0.1, 0.01, 0.0]).reshape(4, 1, 1)
    expected = torch.linalg.matrix_exp(given.to(torch.complex128))
    mine = adapter.numpy(adapter.functional.matrix_exp(adapter.tensor(given.to(dtype))))
    tolerance = 1e-3 if dtype is torch.float32 else 1e-9
    np.testing.assert_allclose(mine, expected.numpy(), rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_exponentials_of_larger_matrices_have_single_precision(
    adapter: EngineAdapter, seed: int, dtype: torch.dtype
) -> None:  # fmt: skip
    """Whose largest elements are right to a few units in the last place, times what squaring adds."""
    given = torch.randn(3, 40, 40, dtype=dtype) * torch.tensor([1e-3, 0.3, 1.0]).reshape(3, 1, 1)
    expected = torch.linalg.matrix_exp(given.to(torch.complex128)).numpy()
    mine = adapter.numpy(adapter.functional.matrix_exp(adapter.tensor(given)))
    assert mine.dtype == given.numpy().dtype
    for actual, exact in zip(mine, expected, strict=True):
        np.testing.assert_allclose(actual, exact, rtol=0, atol=5e-5 * np.abs(exact).max())


def test_decompositions_reach_users(tg: Any, rng: np.random.Generator) -> None:
    numbers = rng.standard_normal((5, 4, 4))
    a = tg.tensor(numbers)
    U, S, Vh = tg.linalg.svd(a)
    np.testing.assert_allclose(((U * S.unsqueeze(-2)) @ Vh).numpy(), numbers, atol=1e-12)
    assert type(tg.linalg.eigh(a + a.mT)).__name__ == "linalg_eigh"
    assert tg.linalg.lstsq(a[0], a[1]).solution.shape == (4, 4)
    out = tg.empty(0, dtype=tg.float64), tg.empty(0, dtype=tg.float64)
    q, _ = tg.linalg.qr(a, out=out)
    assert q is out[0]
    np.testing.assert_allclose((out[0] @ out[1]).numpy(), numbers, atol=1e-12)
    np.testing.assert_allclose(a.det().numpy(), np.linalg.det(numbers))
    np.testing.assert_allclose(a.inverse().numpy(), np.linalg.inv(numbers))
    with pytest.raises(tg.linalg.LinAlgError, match="singular"):
        tg.linalg.inv(tg.zeros(3, 3)).numpy()
