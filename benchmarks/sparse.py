"""Sparse matrices times dense ones, beside PyTorch's: ``python -m benchmarks.sparse [--device cuda:0]``.

Matrices of four densities with 64 columns of a dense one, batches of them, vectors, and the two derivatives. On the CPU
a figure is telegrad's time over PyTorch's, and the goal 1.2 at most; on a GPU it is PyTorch's time over telegrad's, and
the goal 0.97 at least. Operations are called on engine values in this process; indices are checked once, before, as the
client does it, and PyTorch's matrices stand by rows already.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from server.engine import functional as F

from . import on_gpu
from .kernel_cases import Case
from .kernels import compare_all, to_value
from .measure import Figure, about, save

_AT_MOST = 1.2
_AT_LEAST = 0.97
DENSITIES = (0.0005, 0.005, 0.02, 0.1)
_SIZE, _WIDTH = 4096, 64
_BATCH, _BATCHED_SIZE = 16, 1024


class Matrix(NamedTuple):
    """A sparse matrix by rows, or a batch of equally many stored elements, as torch has its parts."""

    crow: torch.Tensor
    col: torch.Tensor
    values: torch.Tensor
    size: int

    def theirs(self, device: str) -> torch.Tensor:
        """Return the operand as PyTorch's tensor."""
        shape = (*self.crow.shape[:-1], self.size, self.size)
        return torch.sparse_csr_tensor(self.crow, self.col, self.values, shape).to(device)


@functools.lru_cache(2)
def drawn(size: int, density: float, batch: int = 0) -> Matrix:
    """Draw a square matrix whose rows have different numbers of elements, or a batch of them."""
    stored = max(1, int(size * size * density))
    parts = [_drawn_one(size, stored) for _ in range(batch or 1)]
    crow, col = (torch.stack(lines) if batch else lines[0] for lines in zip(*parts, strict=True))
    return Matrix(crow, col, torch.randn(col.shape), size)


def _drawn_one(size: int, stored: int) -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.randperm(size * size)[:stored].sort().values
    rows, col = positions // size, positions % size
    return torch.searchsorted(rows, torch.arange(size + 1)), col


Run = Callable[[], Any]


class Problem(NamedTuple):
    """One product under both: what is called again and again."""

    ours: Run
    theirs: Run


Place = Callable[[torch.Tensor], Any]


def product(device: str, place: Place, density: float, width: int, is_transposed: bool = False) -> Problem:
    """A matrix, or its transpose, times a dense one."""
    matrix, dense = drawn(_SIZE, density), torch.randn(_SIZE, width)
    crow, col = F._csr_indices(place(matrix.crow), place(matrix.col), _SIZE)
    values, other = place(matrix.values), place(dense)
    theirs, dense = matrix.theirs(device), dense.to(device)
    left = theirs.t() if is_transposed else theirs
    if width == 1:
        vector = dense[:, 0].contiguous()
        return Problem(lambda: F._csr_matmul(crow, col, values, other, _SIZE, is_transposed), lambda: left @ vector)
    return Problem(lambda: F._csr_matmul(crow, col, values, other, _SIZE, is_transposed), lambda: left @ dense)


def batched(device: str, place: Place, density: float) -> Problem:
    """A batch of matrices times a batch of dense ones: one matrix with the others on its diagonal, as in the client.

    PyTorch has batches in coordinates, and refuses those by rows.
    """
    matrix, dense = drawn(_BATCHED_SIZE, density, _BATCH), torch.randn(_BATCH, _BATCHED_SIZE, _WIDTH)
    size, stored = _BATCH * _BATCHED_SIZE, matrix.col.shape[1]
    number = torch.arange(_BATCH).unsqueeze(1)
    begins = torch.cat([(matrix.crow[:, :-1] + number * stored).reshape(-1), torch.tensor([_BATCH * stored])])
    crow, col = F._csr_indices(place(begins), place((matrix.col + number * _BATCHED_SIZE).reshape(-1)), size)
    values, other = place(matrix.values.reshape(-1)), place(dense.reshape(size, _WIDTH))
    theirs, dense = _coordinates(matrix).to(device), dense.to(device)
    return Problem(lambda: F._csr_matmul(crow, col, values, other, size, False), lambda: torch.bmm(theirs, dense))


def _coordinates(matrix: Matrix) -> torch.Tensor:
    stored, size = matrix.col.shape[1], matrix.size
    places = torch.arange(stored)
    rows = torch.stack([torch.searchsorted(line[1:].contiguous(), places, right=True) for line in matrix.crow])
    numbers = torch.arange(len(rows)).repeat_interleave(stored)
    indices = torch.stack([numbers, rows.reshape(-1), matrix.col.reshape(-1)])
    return torch.sparse_coo_tensor(indices, matrix.values.reshape(-1), (len(rows), size, size)).coalesce()


def sampled(device: str, place: Place, density: float) -> Problem:
    """The product of dense matrices at stored elements, which the gradient of values is."""
    matrix, left, right = drawn(_SIZE, density), torch.randn(_SIZE, _WIDTH), torch.randn(_SIZE, _WIDTH)
    crow, col = F._csr_indices(place(matrix.crow), place(matrix.col), _SIZE)
    operands = place(left), place(right)
    theirs, left, right = matrix.theirs(device), left.to(device), right.to(device).t()
    return Problem(
        lambda: F._csr_sampled_matmul(crow, col, *operands),
        lambda: torch.sparse.sampled_addmm(theirs, left, right, beta=0.0),
    )


def problems(device: str, place: Place) -> dict[str, Callable[[], Problem]]:
    """All problems by name, made when they are measured."""
    made: dict[str, Callable[[], Problem]] = {}
    for density in DENSITIES:
        share = f"{100 * density:g}%"
        label = f"{_SIZE}x{_SIZE} of {share}"
        made[f"product, {label}"] = lambda d=density: product(device, place, d, _WIDTH)  # type: ignore[misc]
        made[f"batch of {_BATCH}, {_BATCHED_SIZE}x{_BATCHED_SIZE} of {share}"] = (  # type: ignore[misc]
            lambda d=density: batched(device, place, d)
        )
        made[f"vector, {label}"] = lambda d=density: product(device, place, d, 1)  # type: ignore[misc]
        made[f"transposed product, {label}"] = lambda d=density: product(device, place, d, _WIDTH, True)  # type: ignore[misc]
        made[f"sampled product, {label}"] = lambda d=density: sampled(device, place, d)  # type: ignore[misc]
    return made


def on_cpu(chosen: dict[str, Callable[[], Problem]], threads: list[int]) -> list[Figure]:
    """Telegrad's time over PyTorch's."""
    cases = [
        Case(name, lambda make=make: [make()], lambda F, p: p.ours(), lambda p: p.theirs())  # type: ignore[misc]
        for name, make in chosen.items()
    ]
    return compare_all(cases, threads, at_most=_AT_MOST)


def on_cuda(chosen: dict[str, Callable[[], Problem]]) -> list[Figure]:
    """PyTorch's time over telegrad's; a problem that one of them refuses is a figure that was missed, and says why."""
    on_gpu.open_gpu()
    figures = []
    for name, make in chosen.items():
        try:
            torch.manual_seed(1)
            problem = make()
            figures.append(on_gpu.compare(name, problem.ours, problem.theirs, at_least=_AT_LEAST, repeats=5))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            figures.append(Figure(name, "x torch", 0.0, 0.0, 0.0, f">= {_AT_LEAST:g}", False, reason))
    return figures


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="threads of PyTorch on the CPU")
    parser.add_argument("--only", default="", help="problems whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
    is_cpu = options.device == "cpu"
    known = problems("cpu" if is_cpu else "cuda", to_value if is_cpu else on_gpu.to_value)
    chosen = {name: make for name, make in known.items() if options.only in name}
    figures = on_cpu(chosen, options.threads) if is_cpu else on_cuda(chosen)
    for one in figures:
        print(one.row())
    if options.save:
        save(options.save, figures, **about(options.device.partition(":")[0]))
    return int(any(one.met is False for one in figures))


if __name__ == "__main__":
    sys.exit(main())
