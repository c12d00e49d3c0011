"""Functions on numbers that are written in the client, and arguments that PyTorch takes as tensors, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

SEED = 20261123
PROGRAMS = [
    "t.trapezoid(t.tensor(v), dim=0)",
    "t.trapz(t.tensor(v), dx=0.5)",
    "t.trapezoid(t.tensor(v), t.tensor([0., 1., 3., 4.]))",
    "t.trapezoid(t.tensor(v), dx=True)",
    "t.trapezoid(t.tensor(v), t.arange(3.))",
    "t.cumulative_trapezoid(t.tensor(v), t.tensor([0., 1., 3., 4.]), dim=1)",
    "t.gradient(t.tensor(v))",
    "t.gradient(t.tensor(v), spacing=2., dim=1, edge_order=2)",
    "t.gradient(t.tensor(v), spacing=[t.tensor([0., 1., 3., 4., 7.]), t.tensor([0., 1., 3., 4.])], edge_order=2)",
    "t.gradient(t.tensor(v), dim=(0, 0))",
    "t.gradient(t.tensor(v), edge_order=3)",
    "t.gradient(t.arange(5))",
    "t.cov(t.tensor(v))",
    "t.cov(t.tensor(v), correction=0, fweights=t.tensor([1, 2, 1, 3]), aweights=t.tensor([.5, 1., 2., 1.]))",
    "t.cov(t.tensor(v), fweights=t.tensor([1, -2, 1, 3]))",
    "t.corrcoef(t.tensor(v))",
    "t.corrcoef(t.tensor([1., 2., 3.]))",
    "t.histc(t.tensor(v), bins=5)",
    "t.histc(t.tensor(v), 4, -1, 1)",
    "t.histc(t.tensor(v), 4, 2, 1)",
    "t.histc(t.ones(3), 4)",
    "tuple(t.histogram(t.tensor(v), 5))",
    "tuple(t.histogram(t.tensor(v), t.tensor([-1., 0., .5, 2.]), weight=t.ones(5, 4) * 2, density=True))",
    "tuple(t.histogram(t.tensor(v), 3, range=(-1., 1.)))",
    "t.histogram(t.tensor(v), 5).bin_edges.shape",
    "t.histogramdd(t.tensor(v)[:, :2], bins=[3, 2]).hist",
    "t.histogramdd(t.tensor(v)[:, :2], bins=[3, 2], density=True).bin_edges",
    "t.float_power(t.tensor([1, 2, 3]), 2)",
    "t.float_power(2, t.tensor([1., 2.]))",
    "t.float_power(t.tensor([1j, 2.]), 2)",
    "t.ones(2).float_power_(2)",
    "t.tensor([2., 3.], dtype=t.float64).float_power_(t.tensor([2, 3]))",
    "t.ldexp(t.tensor([1., 3.]), t.tensor([2, -1]))",
    "t.tensor([1., 3.]).ldexp_(t.tensor([2, -1]))",
    "t.isreal(t.tensor([1j, 2., 3 + 0j]))",
    "t.isreal(t.arange(3))",
    "t.is_nonzero(t.tensor([0.]))",
    "t.is_nonzero(t.ones(2))",
    "t.unravel_index(t.tensor([[1, 5], [11, 0]]), (3, 4))",
    "t.unravel_index(t.tensor(5), 7)",
    "t.unravel_index(t.tensor(5.), 7)",
    "t.nonzero_static(t.tensor([[0, 1], [2, 0]]), size=3)",
    "t.nonzero_static(t.tensor([[0, 1], [2, 0]]), size=1, fill_value=-2)",
    "t.tensor(v).sum_to_size(5, 1)",
    "t.tensor(v).sum_to_size(())",
    "t.tensor(v).sum_to_size((4,))",
    "t.tensor(v).sum_to_size(2, 4)",
    "t.hsplit(t.tensor(v), 2)",
    "t.hsplit(t.arange(4), [1, 3])",
    "t.vsplit(t.tensor(v), [2])",
    "t.vsplit(t.tensor(v), 2)",
    "t.dsplit(t.arange(24).view(2, 3, 4), 2)",
    "t.dsplit(t.tensor(v), 2)",
    "t.unsafe_split(t.tensor(v), 2)",
    "t.unsafe_chunk(t.tensor(v), 2, dim=1)",
    "t.row_stack([t.arange(2), t.arange(2)])",
    "t.tensor(v).narrow(1, t.tensor(2), 2)",
    "t.tensor(v).narrow(1, t.tensor(2.), 2)",
    "t.tensor(v).tensor_split(t.tensor([1, 3]))",
    "t.tensor_split(t.tensor(v), t.tensor(2), dim=1)",
    "t.arange(6).view(t.tensor(2), -1)",
    "t.zeros(t.tensor(2), 3).shape",
    "t.ones(2, 3, 4, 5).double(memory_format=t.channels_last).stride()",
    "t.ones(2, 3, 4, 5).float(memory_format=t.channels_last).stride()",
    "t.ones(2, 3, 4, 5).cpu(memory_format=t.channels_last).stride()",
    "t.permute_copy(t.tensor(v), (1, 0))",
    "t.view_copy(t.tensor(v), (4, 5))",
    "t.split_with_sizes_copy(t.tensor(v), [2, 3])",
    """
    parts = [t.empty(2, 4), t.empty(3, 4)]
    t.split_with_sizes_copy(t.tensor(v), [2, 3], out=parts)
    parts
    """,
    "t.expand_copy(t.ones(2, 1), (2, 3)).stride()",
    "t.squeeze_copy(t.ones(2, 1), out=t.empty(2))",
    "t.squeeze_copy(t.ones(2, 1), out=t.empty(2, dtype=t.int64))",
    "t.trapezoid(t.ones(2)).layout == t.strided",
    "t.ones(2, layout=t.strided)",
    "(t.tensor(v) + 1j).mH",
    "t.adjoint(t.ones(2))",
    "t.adjoint(t.ones(2, 3) + 1j).resolve_conj().is_neg()",
    "t.typename(t.ones(2)), t.typename('a')",
    "t.frombuffer(bytearray(np.arange(4, dtype=np.float32).tobytes()), dtype=t.float32, count=2, offset=4)",
    "t.frombuffer(bytearray(6), dtype=t.float32)",
    "t.quantile(t.tensor(v), t.tensor([.25, .5]), dim=1, keepdim=True).contiguous()",
    "t.quantile(t.tensor(v), 1.5)",
    "t.nanquantile(t.tensor([1., float('nan'), 3.]), .5)",
    "tuple(t.tensor([1., float('nan'), 3.]).nanmedian(0))",
    "tuple(t.tensor([[1, 2, 2, 1], [3, 3, 0, 1]]).mode())",
    "t.mode(t.tensor([1, 2, 2])).values",
    "t.gcd(t.tensor([12, -18]), t.tensor([8, 12]))",
    "t.tensor([12, 18]).lcm_(t.tensor([8, 12]))",
    "t.heaviside(t.tensor([-1., 0., 2.]), t.tensor(.5))",
    "t.heaviside(t.tensor([-1., 0., 2.]), t.tensor(1))",
    "t.arange(4.).view(2, 2).apply_(lambda x: x * x)",
    "t.arange(4.).map_(t.ones(4), lambda x, y: x + y)",
    "t.ones(2).share_memory_()",
    """
    x = t.arange(4)
    (x.is_set_to(x.view(4)), x.is_set_to(x.view(2, 2)), x.is_set_to(x[1:]), x.is_set_to(t.arange(4)))
    """,
    "t.cdist(t.tensor(v), t.tensor(v)[:3] + 1)",
    "t.cdist(t.tensor(v), t.tensor(v)[:3], p=1.0)",
    "t.cdist(t.tensor(v), t.tensor(v)[:3, :2])",
    "t.pdist(t.tensor(v))",
    "t.renorm(t.tensor(v), 2, 0, 1.0)",
    "t.tensor(v).renorm_(1, 1, 0.5)",
    "t.diagflat(t.tensor([[1, 2], [3, 4]]), 1)",
    "t.fill(t.ones(2), 3)",
    "t.zeros(7, 3).fill_diagonal_(2, wrap=True)",
    "t.zeros(3, 3, 3).fill_diagonal_(2)",
    "t.range(1, 4)",
    "t.range(0, 1, 0.25, dtype=t.float64)",
    "t.empty_permuted((2, 3, 4), (2, 0, 1)).stride()",
    "t.ones(3, 2).index_reduce_(0, t.tensor([0, 2]), t.full((2, 2), 4.), 'mean')",
    "t.index_reduce(t.ones(3, 2), 1, t.tensor([1, 1]), t.full((3, 2), 4.), 'prod', include_self=False)",
    "t.arange(6).resize_(2, 2)",
    "t.arange(4).resize_(3, 3)[0]",
    "t.ones(2, requires_grad=True).resize_(3)",
    "t.arange(6.).resize_as_(t.ones(3, 2))",
    "t.unique(t.tensor([[1, 2, 1], [0, 1, 0], [1, 2, 1]]), dim=0, return_inverse=True, return_counts=True)",
    "t.unique(t.tensor([[1., 2., 1.], [0., 1., 0.]]), dim=1)",
    "t.unique_consecutive(t.tensor([1, 1, 2, 2, 1]), return_inverse=True, return_counts=True)",
    "t.unique_consecutive(t.tensor([[1, 2], [1, 2], [0, 0]]), dim=0)",
    "t.unique_consecutive(t.tensor([], dtype=t.int64))",
    "t.masked.sum(t.tensor(v), 1, mask=t.tensor(v) > 0)",
    "t.masked.mean(t.tensor(v), mask=t.tensor(v) > 0)",
    "t.masked.std(t.tensor(v), 0, mask=t.tensor(v) > -2)",
    "t.masked.amax(t.tensor(v), 0, mask=t.tensor(v) > -2)",
    "t.ger(t.arange(2.), t.arange(3.))",
    "t.isin(t.tensor([1, 2]), t.tensor([2]), out=t.empty(2, dtype=t.bool))",
    "t.where(t.tensor([True, False]), t.ones(2), t.zeros(2), out=t.empty(2))",
    "t.nonzero(t.tensor(3), as_tuple=True)",
    "t.column_stack([t.ones(2), t.ones(2)], out=t.empty(0))",
    "t.diff(t.arange(4.), out=t.empty(3))",
    """
    x = t.tensor(v).requires_grad_()
    y = t.tensor(v)[:2] + 1
    (t.cdist(x, y).sum() + t.renorm(x, 2, 0, 1.0).sum() + t.masked.var(x, 0, mask=y[:1] > 1).sum()).backward()
    x.grad
    """,
    """
    x = t.tensor(v).requires_grad_()
    (t.trapezoid(x, dim=0).sum() + t.gradient(x)[0].pow(2).sum() + t.cov(x).sum() + t.quantile(x, 0.3)).backward()
    x.grad
    """,
    "t.trapezoid(t.ones(2, requires_grad=True)).backward()",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_functions_give_what_they_give_in_pytorch(tg: Any, program: str) -> None:
    values = np.random.default_rng(SEED).normal(size=(5, 4)).astype(np.float32).tolist()
    assert_same(*evaluate(program, tg, v=values))
