"""Functions of linear algebra that PyTorch keeps as names alone: a call is told what took their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

_INSTEAD: Final = {
    "eig": "torch.linalg.eigvals(A), or torch.linalg.eig(A) with eigenvectors; their results are complex",
    "lstsq": "torch.linalg.lstsq(A, B), whose arguments are the other way round",
    "matrix_rank": "torch.linalg.matrix_rank, which calls the parameter symmetric hermitian",
    "solve": "torch.linalg.solve(A, B), whose arguments are the other way round; torch.lu has the factors",
    "symeig": "torch.linalg.eigvalsh(A, UPLO='U'), or torch.linalg.eigh(A, UPLO='U') with eigenvectors",
}


def functions() -> dict[str, Callable[..., NoReturn]]:
    """Return the functions by their names; each raises RuntimeError, as PyTorch's do, whatever it is given."""
    return {name: _refusing(name, instead) for name, instead in _INSTEAD.items()}


def _refusing(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.{name}: this function was deprecated since version 1.9 and is now removed; use {instead}"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
