"""Matrix products on a GPU, whatever the layout, with their gradients."""

from __future__ import annotations

import itertools

import pytest
import torch

from server.engine.dispatcher import call
from server.engine.operators import OPERATORS

from .adapters import EngineAdapter
from .harness import to_torch
from .matrix_products import FLOATS, INTEGERS, LAYOUTS, SIZES, check, compare, numbers, wide

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("active")]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products_take_any_layout(gpu: EngineAdapter, dtype: torch.dtype, left: str, right: str) -> None:
    torch.manual_seed(1)
    for m, k, n in SIZES:
        a, b = LAYOUTS[left](numbers((m, k), dtype)), LAYOUTS[right](numbers((k, n), dtype))
        compare(gpu, "mm", [a, b], k, str(dtype))
        batches = LAYOUTS[left](numbers((3, m, k), dtype)), LAYOUTS[right](numbers((3, k, n), dtype))
        compare(gpu, "bmm", list(batches), k, str(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_batches_broadcast(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    one, many = numbers((1, 9, 6), dtype), numbers((5, 6, 11), dtype)
    compare(gpu, "bmm", [one.expand(5, 9, 6), many], 6)
    compare(gpu, "matmul", [one, many], 6)
    compare(gpu, "matmul", [numbers((2, 1, 4, 6), dtype), many], 6)
    compare(gpu, "bmm", [numbers((5, 1, 1), dtype).expand(5, 4, 6), many], 6)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_vectors(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    for m, k in [(1, 1), (7, 5), (300, 4), (3, 2000), (33, 129)]:
        vector, strided = numbers((k,), dtype), numbers((k, 3), dtype)[:, 1]
        for v, layout in itertools.product((vector, strided), LAYOUTS.values()):
            matrix = layout(numbers((m, k), dtype))
            compare(gpu, "mv", [matrix, v], k)
            compare(gpu, "addmv", [numbers((m,), dtype), matrix, v], k, beta=2, alpha=3)
            compare(gpu, "addmv", [numbers((1,), dtype), matrix, v], k)
        compare(gpu, "dot", [vector, strided], k)
        compare(gpu, "vdot", [strided, vector], k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=str)
def test_long_dot_products(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    a, b = numbers((1_000_003,), dtype), numbers((1_000_003,), dtype)
    compare(gpu, "dot", [a, b], 1_000_003)
    compare(gpu, "vdot", [a, b], 1_000_003)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_dot_products_of_what_begins_anywhere(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(18)
    for length, left, right in [(100, 3, 3), (100, 3, 11), (5000, 1, 2), (70_001, 5, 13), (3, 1, 9), (70_001, 4, 0)]:
        a, b = (gpu.tensor(numbers((length + start,), dtype)) for start in (left, right))
        x, y = (gpu.functional.slice(v, 0, start) for v, start in ((a, left), (b, right)))
        expected = torch.dot(*[wide(to_torch(gpu.numpy(v))) for v in (x, y)])
        check(gpu, gpu.functional.dot(x, y), expected, length, f"{length} from {left} and {right}")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_of_products(gpu: EngineAdapter, dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(5)
    shape = LAYOUTS[layout]
    for m, k, n in SIZES:
        a, b = shape(numbers((m, k), dtype)), shape(numbers((k, n), dtype))
        batch_a, batch_b = shape(numbers((2, m, k), dtype)), shape(numbers((2, k, n), dtype))
        for beta, alpha in [(1, 1), (0, 1), (2, 3), (1, 2)]:
            for added in (shape(numbers((m, n), dtype)), numbers((n,), dtype), numbers((m, 1), dtype),
                          numbers((), dtype), numbers((1, n), dtype), numbers((2 * n,), dtype)[::2]):  # fmt: skip
                compare(gpu, "addmm", [added, a, b], k, beta=beta, alpha=alpha)
            for added in (shape(numbers((2, m, n), dtype)), numbers((m, n), dtype), numbers((n,), dtype)):
                compare(gpu, "baddbmm", [added, batch_a, batch_b], k, beta=beta, alpha=alpha)


def test_fractional_factors(gpu: EngineAdapter) -> None:
    torch.manual_seed(6)
    for dtype in FLOATS:
        args = [numbers(s, dtype) for s in ((5, 6), (5, 7), (7, 6))]
        compare(gpu, "addmm", args, 7, beta=0.5, alpha=-1.25)
    args = [numbers(s, torch.complex64) for s in ((5, 6), (5, 7), (7, 6))]
    compare(gpu, "addmm", args, 7, beta=0.5 - 1j, alpha=2j)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_products_of_nothing(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 0, 1)]:
        a, b = numbers((m, k), dtype), numbers((k, n), dtype)
        compare(gpu, "mm", [a, b], 0)
        compare(gpu, "bmm", [a.expand(2, m, k), b.expand(2, k, n)], 0)
        compare(gpu, "bmm", [numbers((0, m, k), dtype), numbers((0, k, n), dtype)], 0)
        compare(gpu, "addmm", [numbers((m, n), dtype), a, b], 0, beta=3)
        compare(gpu, "mv", [a, numbers((k,), dtype)], 0)
    compare(gpu, "dot", [numbers((0,), dtype), numbers((0,), dtype)], 0)
    if dtype.is_floating_point:
        compare(gpu, "linear", [numbers((3, 0), dtype), numbers((4, 0), dtype), numbers((4,), dtype)], 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_multiplied_by_zero_does_not_count(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    nothing = torch.full((4, 6), float("nan"), dtype=dtype)
    compare(gpu, "addmm", [nothing, numbers((4, 5), dtype), numbers((5, 6), dtype)], 5, beta=0)
    compare(gpu, "addmm", [nothing, numbers((4, 0), dtype), numbers((0, 6), dtype)], 0, beta=0)


def test_infinities_nan_and_denormals_pass_through(gpu: EngineAdapter) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        a, b = torch.ones(4, 5, dtype=dtype), torch.ones(5, 3, dtype=dtype)
        a[0, 0], a[1, 1], b[2, 2] = float("nan"), float("inf"), float("-inf")
        compare(gpu, "mm", [a, b], 5)
    tiny = torch.full((2, 3), 1e-40)
    found = gpu.functional.mm(gpu.tensor(tiny), gpu.tensor(torch.eye(3)))
    assert torch.equal(to_torch(gpu.numpy(found)), tiny)


def test_a_factor_may_be_the_target(gpu: EngineAdapter) -> None:
    torch.manual_seed(8)
    for layout in LAYOUTS.values():
        target, other = layout(torch.randn(24, 24)), torch.randn(24, 24)
        value = gpu.tensor(target)
        gpu.functional.addmm_(value, value, gpu.tensor(other), beta=0.5)
        check(gpu, value, torch.addmm(target.double(), target.double(), other.double(), beta=0.5), 24, "addmm_")
        value = gpu.tensor(target)
        gpu.functional.addmm_(value, gpu.tensor(other), value)
        check(gpu, value, torch.addmm(target.double(), other.double(), target.double()), 24, "addmm_")
        vector = torch.randn(24)
        value = gpu.tensor(vector)
        gpu.functional.addmv_(value, gpu.tensor(target), value, beta=2)
        check(gpu, value, torch.addmv(vector.double(), target.double(), vector.double(), beta=2), 24, "addmv_")


def test_results_go_into_any_layout(gpu: EngineAdapter) -> None:
    torch.manual_seed(9)
    a, b = torch.randn(20, 30), torch.randn(30, 10)
    for name, layout in LAYOUTS.items():
        out = gpu.tensor(layout(torch.full((20, 10), float("nan"))))
        call(OPERATORS["mm.out"], (gpu.tensor(a), gpu.tensor(b)), {"out": out})
        check(gpu, out, a.double() @ b.double(), 30, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_linear_and_its_gradients(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(10)
    for lead, k, n in [((4,), 5, 6), ((2, 3), 16, 8), ((), 7, 3), ((3, 0), 4, 5), ((64,), 128, 256), ((2, 9), 1, 1)]:
        x, w, bias = numbers((*lead, k), dtype), numbers((n, k), dtype), numbers((n,), dtype)
        for b in (bias, None, numbers((1,), dtype)):
            compare(gpu, "linear", [x, w, b], k)
        _gradients(gpu, x, w, bias, numbers((*lead, n), dtype))
    strided = numbers((6, 4, 10), dtype).transpose(0, 1)[:, 1:4]
    compare(gpu, "linear", [strided, numbers((3, 10), dtype), numbers((3,), dtype)], 10)
    compare(gpu, "linear", [numbers((5, 8), dtype), numbers((8,), dtype), None], 8)
    _gradients(
        gpu, strided, numbers((3, 10), dtype).mT.contiguous().mT, numbers((3,), dtype),
        numbers((3, 4, 3), dtype).transpose(0, 1)[:, :3],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_large_linear_layers(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    """Where the bias gradient may be summed apart from the product."""
    torch.manual_seed(19)
    x, w, bias, cotangent = (numbers(shape, dtype) for shape in ((2, 520, 1024), (1040, 1024), (1040,), (2, 520, 1040)))
    _gradients(gpu, x, w, bias, cotangent)


def _gradients(
    gpu: EngineAdapter, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, cotangent: torch.Tensor
) -> None:  # fmt: skip
    references = [wide(t).clone().requires_grad_() for t in (x, w, bias)]
    out = torch.nn.functional.linear(*references)
    expected = torch.autograd.grad(out, references, wide(cotangent).reshape(out.shape))
    leaves = [gpu.tensor(t, True) for t in (x, w, bias)]
    found = gpu.grad([gpu.functional.linear(*leaves)], [gpu.tensor(cotangent)], leaves, False)
    rows = max(x.numel() // max(x.shape[-1], 1), 1)
    for mine, reference, what in zip(found, expected, ("input", "weight", "bias"), strict=True):
        check(gpu, mine, reference, max(rows, w.shape[0]), f"gradient of {what}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("use_gelu", [False, True])
def test_activations_of_sums(gpu: EngineAdapter, dtype: torch.dtype, use_gelu: bool) -> None:
    torch.manual_seed(17)
    functional = torch.nn.functional
    for added in ((48,), (1, 48), (64, 48), ()):
        args = [numbers(shape, dtype) for shape in (added, (64, 32), (32, 48))]
        sums = torch.addmm(*[wide(a) for a in args], beta=1, alpha=0.5)
        expected = functional.gelu(sums, approximate="tanh") if use_gelu else functional.relu(sums)
        found = gpu.functional._addmm_activation(*map(gpu.tensor, args), alpha=0.5, use_gelu=use_gelu)
        check(gpu, found, expected, 32, f"{added} {dtype}")
