"""Losses, gradients of views and copies around products are computed by kernels of our own, and not by CuPy's.

Without a GPU the host executes the texts of the kernels; ``host_kernels`` says how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import keys
from server.engine.cuda import families
from server.engine.cuda.gemm import launch as products
from server.engine.cuda.gemm.layout import column, flattened, matrices, spread, spread_column
from server.engine.cuda.gemm.product import Product
from server.engine.cuda.pointwise import copying, pointwise
from server.engine.operators import OPERATORS, Request
from server.engine.value import Value

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .host_kernels import HostKernel

_ = registrations
families.import_families()
withdraw()
T = torch.Tensor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where texts are compiled for the host, each once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have the host execute element-wise kernels and copies."""
    for module in (pointwise, copying):
        monkeypatch.setattr(module, "load", functools.partial(HostKernel, folder=folder))


def _computed(adapter: EngineAdapter, name: str, *arguments: Any) -> np.ndarray:
    """What the kernel that is prepared for a call leaves in new memory."""
    operator = OPERATORS[name]
    defaults = [param.default for param in operator.op.params[len(arguments) :]]
    args = tuple([adapter.tensor(one) if isinstance(one, T) else one for one in (*arguments, *defaults)])
    metas = tuple([one.meta if isinstance(one, Value) else one for one in args])
    backend: Any = next(one for one in args if isinstance(one, Value)).backend
    out = operator.op.infer(metas)
    compute = operator.op.compute_dtype(metas) if operator.op.promotion else None
    request = Request(operator.op, backend, metas, (out,), compute)
    launches = [one.factory(request) for one in operator.preparers[keys.CUDA]]
    launch = next(one for one in launches if one is not None)
    made = backend.empty(out)
    launch(args, (made,))
    return np.array(adapter.numpy(made))


F = torch.nn.functional
LOSSES: dict[str, tuple[tuple[Any, ...], Callable[..., T]]] = {
    "_squared_error": ((), functools.partial(F.mse_loss, reduction="none")),
    "_huber_error": ((0.7,), lambda x, y, delta: F.huber_loss(x, y, "none", delta)),
    "_bce_with_logits": ((), functools.partial(F.binary_cross_entropy_with_logits, reduction="none")),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_each_element(adapter: EngineAdapter, seed: int, name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    numbers, reference = LOSSES[name]
    x, y = (2 * torch.randn(2, 7, 33)).to(dtype)
    x[0, :2] = torch.tensor([float("nan"), 0.0])
    bound = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2}[dtype]
    expected = reference(x.double(), y.double(), *numbers).numpy()
    np.testing.assert_allclose(
        _computed(adapter, name, x, y, *numbers).astype(np.float64), expected, rtol=bound, atol=bound
    )


PLACED: dict[str, tuple[tuple[int, ...] | None, tuple[Any, ...], Callable[..., T]]] = {
    "select_scatter": ((4, 6), (1, 2), torch.select_scatter),
    "slice_scatter": ((4, 5, 2), (2, 1, 6, 3), torch.slice_scatter),
    "diagonal_scatter": ((6, 3), (-1, 0, 1), torch.diagonal_scatter),
    "_scatter_strided": ((3, 2), ((3, 2), (30, 7), 4), torch.as_strided_scatter),
    "diag_embed": (None, (1, 0, 2), torch.diag_embed),
    "repeat_interleave": (None, (3, 1), torch.repeat_interleave),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("is_spread", [False, True], ids=["row-major", "of one number"])
@pytest.mark.parametrize("name", PLACED)
def test_copies_with_something_in_a_part(
    adapter: EngineAdapter, seed: int, name: str, is_spread: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    shape, arguments, reference = PLACED[name]
    x = (4 * torch.randn(4, 5, 6)).to(dtype)
    parts = [(4 * torch.randn(shape)).to(dtype)] if shape is not None else []
    if is_spread and name != "_scatter_strided":  # whose result keeps the strides of the operand
        x = x[:1, :1, :1].expand(4, 5, 6)
    expected = reference(x, *parts, *arguments)
    np.testing.assert_array_equal(_computed(adapter, name, x, *parts, *arguments), expected.numpy())


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_elements_are_repeated_in_place(adapter: EngineAdapter, seed: int, dim: int | None) -> None:
    torch.manual_seed(seed)
    for x in (torch.randn(3, 4, 5).transpose(0, 2), torch.randn(7, 3)):
        found = _computed(adapter, "repeat_interleave", x, 2, dim)
        np.testing.assert_array_equal(found, torch.repeat_interleave(x, 2, dim).numpy())
    found = _computed(adapter, "repeat_interleave", torch.tensor(3.0), 4, None)
    np.testing.assert_array_equal(found, [3.0] * 4)


def test_factors_that_blas_cannot_take_are_copied(adapter: EngineAdapter, seed: int) -> None:
    """A gradient that repeats one number, and one whose rows are not evenly apart."""
    torch.manual_seed(seed)
    right = torch.randn(6, 5)
    for left in (torch.randn(1, 1).expand(8, 6), torch.randn(4, 6, 2).transpose(1, 2)):
        a, b = adapter.tensor(left), adapter.tensor(right)
        backend: Any = a.backend
        out = backend.empty(a.meta.like((*a.meta.shape[:-1], 5)))
        product = Product(flattened(a.meta), matrices(b.meta), flattened(out.meta))
        packed = product._replace(left=product.left.compact)
        found: dict[str, np.ndarray] = {}

        def multiply(stream: int, left_at: int, *rest: int, rows: T = left, found: Any = found) -> None:
            count = rows.numel()
            held = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * count).from_address(left_at))
            found["left"] = held.reshape(rows.shape).copy()

        products.careful(backend, product, packed, multiply, False)((a, b), (out,))
        np.testing.assert_array_equal(found["left"], left.numpy())


@pytest.mark.parametrize("is_vector", [False, True], ids=["a matrix", "a vector"])
def test_results_that_would_overwrite_a_factor_are_computed_elsewhere(
    adapter: EngineAdapter, seed: int, is_vector: bool
) -> None:
    """What is added is copied there first, and the result is copied back."""
    torch.manual_seed(seed)
    left, added = torch.randn(6, 6), torch.randn(6)
    a, c = adapter.tensor(left.clone()), adapter.tensor(added)
    backend: Any = a.backend
    target = Value(a.storage, a.meta.view((6,), (6,)) if is_vector else a.meta, backend)
    of = column if is_vector else matrices
    beside = spread_column(c.meta, 6) if is_vector else spread(c.meta, (6, 6))
    product = Product(
        matrices(a.meta), of(target.meta), of(target.meta), 1, 2, added=beside, added_at=0, beta=1, may_alias=True
    )
    rows = 6 if is_vector else 36

    def double(stream: int, left_at: int, right_at: int, added_at: int, out_at: int, bias_at: int) -> None:
        held = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * rows).from_address(out_at))
        held *= 2

    packed = product._replace(out=product.out.compact)
    products.careful(backend, product, packed, double, True)((c, a, target), (target,))
    expected = left.clone()
    if is_vector:
        expected[:, 0] = 2 * added
    else:
        expected[:] = 2 * added
    np.testing.assert_array_equal(adapter.numpy(a), expected.numpy())
