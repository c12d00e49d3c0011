"""Functions that are short programs of operations, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .twins import assert_same, evaluate

PROGRAMS = [
    't.einsum("ij,jk->ik", t.arange(6.).view(2, 3), t.arange(12.).view(3, 4))',
    't.einsum("ij,jk", t.arange(6.).view(2, 3), t.arange(12.).view(3, 4))',
    't.einsum("ij->ji", t.arange(6.).view(2, 3))',
    't.einsum("ii", t.arange(9.).view(3, 3))',
    't.einsum("ii->i", t.arange(9.).view(3, 3))',
    't.einsum("ij->", t.arange(6.).view(2, 3))',
    't.einsum("i,j->ij", t.arange(3.), t.arange(4.))',
    't.einsum("bij,bjk->bik", t.arange(12.).view(2, 2, 3), t.arange(12.).view(2, 3, 2))',
    't.einsum("...ij,...jk->...ik", t.arange(12.).view(2, 2, 3), t.arange(6.).view(3, 2))',
    't.einsum("bhqd,bhkd->bhqk", t.arange(48.).view(2, 2, 3, 4), t.arange(32.).view(2, 2, 2, 4))',
    't.einsum("i,i,i->", t.arange(3.), t.arange(3.), t.arange(3.))',
    't.einsum("ij,kj,lk->il", t.arange(6.).view(2, 3), t.arange(12.).view(4, 3), t.arange(8.).view(2, 4))',
    't.einsum("i,i->i", t.arange(3.), t.arange(3.))',
    't.einsum("ij,jk->ik", t.ones(2, 3), t.ones(2, 3))',
    't.einsum("ij->ijk", t.ones(2, 3))',
    "t.einsum(t.arange(6.).view(2, 3), [0, 1], t.arange(12.).view(3, 4), [1, 2], [0, 2])",
    "t.einsum(t.arange(6.).view(2, 3), [0, 1], t.arange(12.).view(3, 4), [1, 2])",
    "t.einsum(t.arange(8.).view(2, 2, 2), [..., 0, 51], [..., 51, 0])",
    "t.einsum(t.ones(2), [52])",
    "t.einsum(t.ones(2), t.ones(2))",
    "t.einsum(3)",
    't.einsum("ij,jk->ik", t.ones(2, 3))',
    't.einsum("ijk", t.ones(2, 3))',
    't.einsum("ij,jk->ik", [t.ones(2, 3), t.ones(3, 2)])',
    't.einsum("ab,ab->", t.ones(2, 3, requires_grad=True), t.ones(2, 3)).requires_grad',
    't.einsum("b i j, b j k -> b i k", t.ones(2, 2, 3), t.ones(2, 3, 2))',
    "t.tensordot(t.arange(24.).view(2, 3, 4), t.arange(24.).view(4, 3, 2), dims=([1, 2], [1, 0]))",
    "t.tensordot(t.arange(6.).view(2, 3), t.arange(12.).view(3, 4), dims=1)",
    "t.tensordot(t.arange(3.), t.arange(2.), dims=0)",
    "t.tensordot(t.ones(2, 3), t.ones(2, 3), dims=1)",
    't.meshgrid(t.arange(2), t.arange(3), indexing="ij")',
    't.meshgrid(t.arange(2), t.arange(3), indexing="xy")',
    't.meshgrid([t.arange(2), t.arange(3), t.arange(4)], indexing="ij")',
    "t.broadcast_tensors(t.ones(2, 1), t.ones(3))",
    "t.broadcast_tensors(t.ones(2), t.ones(3))",
    "tuple(t.broadcast_shapes((2, 1), (3,), (1, 1, 1)))",
    "t.cartesian_prod(t.arange(2), t.arange(3))",
    "t.combinations(t.arange(4))",
    "t.combinations(t.arange(3), 2, with_replacement=True)",
    "t.combinations(t.arange(1), 3)",
    "t.block_diag(t.ones(2, 2), t.arange(3.), t.tensor(5.))",
    "t.atleast_1d(t.tensor(1.), t.ones(2))",
    "t.atleast_2d(t.ones(2))",
    "t.atleast_3d(t.ones(2), t.ones(2, 3))",
    "t.column_stack([t.arange(3), t.arange(6).view(3, 2)])",
    "t.tril_indices(3, 4, -1)",
    "t.triu_indices(3, 4, 1)",
    "t.triu_indices(3, 3, -1)",
    "t.isin(t.tensor([1, 2, 3]), t.tensor([2, 5]))",
    "t.isin(t.tensor([1, 2, 3]), 2)",
    "t.isin(t.tensor([[1, 2]]), t.tensor([1]), invert=True)",
    "t.unique(t.tensor([3, 1, 2, 1]))",
    "t.unique(t.tensor([[3., 1.], [2., 1.]]), return_inverse=True, return_counts=True)",
    "t.unique(t.tensor([], dtype=t.int64), return_counts=True)",
    "t.tensor([5, 5]).unique()",
    "t.tensordot(t.ones(1, 1, 1, dtype=t.int8), t.ones(2, 1, 2, dtype=t.int8), dims=[[0, 1], [2, 0]])",
    "t.unravel_index(t.tensor([3, 5], dtype=t.int8), (4, 1 << 30))",
    "t.view_copy(t.arange(6).view(2, 3).t(), (2, 3))",
    "edges = t.tensor([0.0, 1.0])\nt.histogram(t.ones(3), edges)[1].add_(1)\nedges",
    "P, L, U = t.linalg.lu(t.eye(2, requires_grad=True))\n(P.requires_grad, L.requires_grad)",
    "t.signal.windows.hann(3, dtype=t.int64)",
    "t.unique(t.tensor([7]), return_counts=True)",
    """
    q, k = t.arange(12.0).view(2, 3, 2).requires_grad_(), t.ones(2, 4, 2, requires_grad=True)
    (t.einsum("bqd,bkd->bqk", q, k) ** 2).sum().backward()
    (q.grad, k.grad)
    """,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_composites_give_what_they_give_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->iz", "ij,jk", "i..j,jk", "ij", "ij,jk,k", "i1,jk", "ijk,jk", "i,jk", "ij,jk->ii", "ii,jk", "a...bcd,ij",
     "......,ij", "ij,jk->i.k", "ij,jk->......"],
)  # fmt: skip
def test_equations_that_make_no_sense_are_refused_in_pytorchs_words(tg: Any, equation: str) -> None:
    told = []
    for t in (torch, tg):
        with pytest.raises(RuntimeError) as refused:
            t.einsum(equation, t.ones(2, 3), t.ones(2, 4))
        told.append(str(refused.value).partition("\n")[0])
    assert told[1] == told[0]


def test_zeros_of_remainders_have_the_sign_of_the_dividend(tg: Any) -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        a, b = ([-2.0, 2.0, -0.0, 0.0, 4.0, -3.0, 7.5] * 40, [2.0, -2.0, 2.0, -2.0, -2.0, 2.0, -2.5] * 40)
        seen = []
        for t in (torch, tg):
            x, y = (t.tensor(values, dtype=getattr(t, dtype)) for values in (a, b))
            results = [x % y, x % 2, 4 % y, x.clone().remainder_(y), t.remainder(x, y, out=y.clone())]
            seen.append([[one.tolist(), t.signbit(one).tolist()] for one in results])
        assert seen[1] == seen[0]


def test_an_index_out_of_range_is_an_error_of_both_kinds_and_in_pytorchs_words(tg: Any) -> None:
    for kind in (IndexError, RuntimeError):
        with pytest.raises(kind, match="index 23 is out of bounds for dimension 1 with size 2"):
            tg.gather(tg.ones(2, 2), 1, tg.tensor([[23, 0]])).tolist()
