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
