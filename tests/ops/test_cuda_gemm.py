"""Matrix products on a GPU against float64 (complex128, wrapped int64) references, whatever the layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.dispatcher import call
from server.engine.operators import OPERATORS

from .adapters import EngineAdapter
from .harness import to_torch

pytestmark = pytest.mark.gpu

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ROUNDING = {
    torch.float32: 2.0**-22, torch.complex64: 2.0**-21, torch.float64: 2.0**-50, torch.complex128: 2.0**-49,
    torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7,
}  # fmt: skip
Layout = Callable[[torch.Tensor], torch.Tensor]


def _transposed(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mT.contiguous().mT


def _gapped(matrix: torch.Tensor) -> torch.Tensor:
    """Rows further apart than they are long, and a first element that is not aligned."""
    rows, columns = matrix.shape[-2:]
    holder = torch.zeros(*matrix.shape[:-2], rows + 2, columns + 5, dtype=matrix.dtype)
    view = holder[..., 1 : rows + 1, 3 : columns + 3]
    return view.copy_(matrix)


def _gapped_columns(matrix: torch.Tensor) -> torch.Tensor:
    return _gapped(matrix.mT).mT


def _no_unit_stride(matrix: torch.Tensor) -> torch.Tensor:
    holder = torch.zeros(*matrix.shape[:-1], matrix.shape[-1] * 2, dtype=matrix.dtype)
    return holder[..., ::2].copy_(matrix)


LAYOUTS: dict[str, Layout] = {
    "rows": lambda m: m, "columns": _transposed, "gapped": _gapped, "gapped columns": _gapped_columns,
    "no unit stride": _no_unit_stride,
}  # fmt: skip
SIZES = [(1, 1, 1), (3, 5, 7), (17, 1, 33), (1, 40, 9), (64, 48, 128), (129, 65, 31), (8, 256, 1)]


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> Iterator[EngineAdapter]:
    yield EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def active(gpu: EngineAdapter) -> None:
    gpu.activate()


def _numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    return torch.randint(0, 100, shape).to(dtype)


def _wide(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def _check(gpu: EngineAdapter, found: Any, expected: torch.Tensor, terms: int, what: str) -> None:
    mine = to_torch(gpu.numpy(found))
    assert mine.shape == expected.shape, what
    if not (mine.dtype.is_floating_point or mine.dtype.is_complex):
        assert torch.equal(mine, expected.to(mine.dtype)), what
        return
    scale = 1.0 + expected.abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 1.0
    limit = ROUNDING[mine.dtype] * scale * (1.0 if mine.dtype.itemsize == 2 else max(terms, 1) ** 0.5 + 2)
    torch.testing.assert_close(
        _wide(mine), expected, rtol=0, atol=limit * 2, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def _compare(gpu: EngineAdapter, name: str, args: list[Any], terms: int, what: str = "", **options: Any) -> Any:
    mine = [gpu.tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    found = getattr(gpu.functional, name)(*mine, **options)
    reference = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    expected = reference(*[_wide(a) for a in args], **options)
    _check(gpu, found, expected, terms, f"{name} {what} {[tuple(a.shape) for a in args if a is not None]} {options}")
    return found


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products_take_any_layout(gpu: EngineAdapter, dtype: torch.dtype, left: str, right: str) -> None:
    torch.manual_seed(1)
    for m, k, n in SIZES:
        a, b = LAYOUTS[left](_numbers((m, k), dtype)), LAYOUTS[right](_numbers((k, n), dtype))
        _compare(gpu, "mm", [a, b], k, str(dtype))
        batches = LAYOUTS[left](_numbers((3, m, k), dtype)), LAYOUTS[right](_numbers((3, k, n), dtype))
        _compare(gpu, "bmm", list(batches), k, str(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_batches_broadcast(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    one, many = _numbers((1, 9, 6), dtype), _numbers((5, 6, 11), dtype)
    _compare(gpu, "bmm", [one.expand(5, 9, 6), many], 6)
    _compare(gpu, "matmul", [one, many], 6)
    _compare(gpu, "matmul", [_numbers((2, 1, 4, 6), dtype), many], 6)
    _compare(gpu, "bmm", [_numbers((5, 1, 1), dtype).expand(5, 4, 6), many], 6)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_vectors(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    for m, k in [(1, 1), (7, 5), (300, 4), (3, 2000), (33, 129)]:
        vector, strided = _numbers((k,), dtype), _numbers((k, 3), dtype)[:, 1]
        for v, layout in itertools.product((vector, strided), LAYOUTS.values()):
            matrix = layout(_numbers((m, k), dtype))
            _compare(gpu, "mv", [matrix, v], k)
            _compare(gpu, "addmv", [_numbers((m,), dtype), matrix, v], k, beta=2, alpha=3)
            _compare(gpu, "addmv", [_numbers((1,), dtype), matrix, v], k)
        _compare(gpu, "dot", [vector, strided], k)
        _compare(gpu, "vdot", [strided, vector], k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=str)
def test_long_dot_products(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    a, b = _numbers((1_000_003,), dtype), _numbers((1_000_003,), dtype)
    _compare(gpu, "dot", [a, b], 1_000_003)
    _compare(gpu, "vdot", [a, b], 1_000_003)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_dot_products_of_what_begins_anywhere(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(18)
    for length, left, right in [(100, 3, 3), (100, 3, 11), (5000, 1, 2), (70_001, 5, 13), (3, 1, 9), (70_001, 4, 0)]:
        a, b = (gpu.tensor(_numbers((length + start,), dtype)) for start in (left, right))
        x, y = (gpu.functional.slice(v, 0, start) for v, start in ((a, left), (b, right)))
        expected = torch.dot(*[_wide(to_torch(gpu.numpy(v))) for v in (x, y)])
        _check(gpu, gpu.functional.dot(x, y), expected, length, f"{length} from {left} and {right}")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_of_products(gpu: EngineAdapter, dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(5)
    shape = LAYOUTS[layout]
    for m, k, n in SIZES:
        a, b = shape(_numbers((m, k), dtype)), shape(_numbers((k, n), dtype))
        batch_a, batch_b = shape(_numbers((2, m, k), dtype)), shape(_numbers((2, k, n), dtype))
        for beta, alpha in [(1, 1), (0, 1), (2, 3), (1, 2)]:
            for added in (shape(_numbers((m, n), dtype)), _numbers((n,), dtype), _numbers((m, 1), dtype),
                          _numbers((), dtype), _numbers((1, n), dtype), _numbers((2 * n,), dtype)[::2]):  # fmt: skip
                _compare(gpu, "addmm", [added, a, b], k, beta=beta, alpha=alpha)
            for added in (shape(_numbers((2, m, n), dtype)), _numbers((m, n), dtype), _numbers((n,), dtype)):
                _compare(gpu, "baddbmm", [added, batch_a, batch_b], k, beta=beta, alpha=alpha)


def test_fractional_factors(gpu: EngineAdapter) -> None:
    torch.manual_seed(6)
    for dtype in FLOATS:
        args = [_numbers(s, dtype) for s in ((5, 6), (5, 7), (7, 6))]
        _compare(gpu, "addmm", args, 7, beta=0.5, alpha=-1.25)
    args = [_numbers(s, torch.complex64) for s in ((5, 6), (5, 7), (7, 6))]
    _compare(gpu, "addmm", args, 7, beta=0.5 - 1j, alpha=2j)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_products_of_nothing(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 0, 1)]:
        a, b = _numbers((m, k), dtype), _numbers((k, n), dtype)
        _compare(gpu, "mm", [a, b], 0)
        _compare(gpu, "bmm", [a.expand(2, m, k), b.expand(2, k, n)], 0)
        _compare(gpu, "bmm", [_numbers((0, m, k), dtype), _numbers((0, k, n), dtype)], 0)
        _compare(gpu, "addmm", [_numbers((m, n), dtype), a, b], 0, beta=3)
        _compare(gpu, "mv", [a, _numbers((k,), dtype)], 0)
    _compare(gpu, "dot", [_numbers((0,), dtype), _numbers((0,), dtype)], 0)
    if dtype.is_floating_point:
        _compare(gpu, "linear", [_numbers((3, 0), dtype), _numbers((4, 0), dtype), _numbers((4,), dtype)], 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_multiplied_by_zero_does_not_count(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    nothing = torch.full((4, 6), float("nan"), dtype=dtype)
    _compare(gpu, "addmm", [nothing, _numbers((4, 5), dtype), _numbers((5, 6), dtype)], 5, beta=0)
    _compare(gpu, "addmm", [nothing, _numbers((4, 0), dtype), _numbers((0, 6), dtype)], 0, beta=0)


def test_infinities_nan_and_denormals_pass_through(gpu: EngineAdapter) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        a, b = torch.ones(4, 5, dtype=dtype), torch.ones(5, 3, dtype=dtype)
        a[0, 0], a[1, 1], b[2, 2] = float("nan"), float("inf"), float("-inf")
        _compare(gpu, "mm", [a, b], 5)
    tiny = torch.full((2, 3), 1e-40)
    found = gpu.functional.mm(gpu.tensor(tiny), gpu.tensor(torch.eye(3)))
    assert torch.equal(to_torch(gpu.numpy(found)), tiny)


def test_a_factor_may_be_the_target(gpu: EngineAdapter) -> None:
    torch.manual_seed(8)
    for layout in LAYOUTS.values():
        target, other = layout(torch.randn(24, 24)), torch.randn(24, 24)
        value = gpu.tensor(target)
        gpu.functional.addmm_(value, value, gpu.tensor(other), beta=0.5)
        _check(gpu, value, torch.addmm(target.double(), target.double(), other.double(), beta=0.5), 24, "addmm_")
        value = gpu.tensor(target)
        gpu.functional.addmm_(value, gpu.tensor(other), value)
        _check(gpu, value, torch.addmm(target.double(), other.double(), target.double()), 24, "addmm_")
        vector = torch.randn(24)
        value = gpu.tensor(vector)
        gpu.functional.addmv_(value, gpu.tensor(target), value, beta=2)
        _check(gpu, value, torch.addmv(vector.double(), target.double(), vector.double(), beta=2), 24, "addmv_")


def test_results_go_into_any_layout(gpu: EngineAdapter) -> None:
    torch.manual_seed(9)
    a, b = torch.randn(20, 30), torch.randn(30, 10)
    for name, layout in LAYOUTS.items():
        out = gpu.tensor(layout(torch.full((20, 10), float("nan"))))
        call(OPERATORS["mm.out"], (gpu.tensor(a), gpu.tensor(b)), {"out": out})
        _check(gpu, out, a.double() @ b.double(), 30, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_linear_and_its_gradients(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(10)
    for lead, k, n in [((4,), 5, 6), ((2, 3), 16, 8), ((), 7, 3), ((3, 0), 4, 5), ((64,), 128, 256), ((2, 9), 1, 1)]:
        x, w, bias = _numbers((*lead, k), dtype), _numbers((n, k), dtype), _numbers((n,), dtype)
        for b in (bias, None, _numbers((1,), dtype)):
            _compare(gpu, "linear", [x, w, b], k)
        _gradients(gpu, x, w, bias, _numbers((*lead, n), dtype))
    strided = _numbers((6, 4, 10), dtype).transpose(0, 1)[:, 1:4]
    _compare(gpu, "linear", [strided, _numbers((3, 10), dtype), _numbers((3,), dtype)], 10)
    _compare(gpu, "linear", [_numbers((5, 8), dtype), _numbers((8,), dtype), None], 8)
    _gradients(
        gpu, strided, _numbers((3, 10), dtype).mT.contiguous().mT, _numbers((3,), dtype),
        _numbers((3, 4, 3), dtype).transpose(0, 1)[:, :3],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_large_linear_layers(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    """Where the bias gradient may be summed apart from the product."""
    torch.manual_seed(19)
    x, w, bias, cotangent = (
        _numbers(shape, dtype) for shape in ((2, 520, 1024), (1040, 1024), (1040,), (2, 520, 1040))
    )
    _gradients(gpu, x, w, bias, cotangent)


def _gradients(
    gpu: EngineAdapter, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, cotangent: torch.Tensor
) -> None:  # fmt: skip
    wide = [_wide(t).clone().requires_grad_() for t in (x, w, bias)]
    out = torch.nn.functional.linear(*wide)
    expected = torch.autograd.grad(out, wide, _wide(cotangent).reshape(out.shape))
    leaves = [gpu.tensor(t, True) for t in (x, w, bias)]
    found = gpu.grad([gpu.functional.linear(*leaves)], [gpu.tensor(cotangent)], leaves, False)
    rows = max(x.numel() // max(x.shape[-1], 1), 1)
    for mine, reference, what in zip(found, expected, ("input", "weight", "bias"), strict=True):
        _check(gpu, mine, reference, max(rows, w.shape[0]), f"gradient of {what}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("use_gelu", [False, True])
def test_activations_of_sums(gpu: EngineAdapter, dtype: torch.dtype, use_gelu: bool) -> None:
    torch.manual_seed(17)
    functional = torch.nn.functional
    for added in ((48,), (1, 48), (64, 48), ()):
        args = [_numbers(shape, dtype) for shape in (added, (64, 32), (32, 48))]
        sums = torch.addmm(*[_wide(a) for a in args], beta=1, alpha=0.5)
        expected = functional.gelu(sums, approximate="tanh") if use_gelu else functional.relu(sums)
        found = gpu.functional._addmm_activation(*map(gpu.tensor, args), alpha=0.5, use_gelu=use_gelu)
        _check(gpu, found, expected, 32, f"{added} {dtype}")


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("forced", [False, True])
def test_sizes_that_tensor_cores_do_not_take(
    gpu: EngineAdapter, dtype: torch.dtype, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded because they are large, or because the estimate is told to: each size in turn, transposed, misaligned."""
    torch.manual_seed(16)
    _switched(gpu, "allow_tf32", True)
    sizes = [(2048, 1024, 2047), (2047, 1024, 2048), (2048, 1023, 2048)]
    if forced:
        from server.engine.cuda.gemm import padding as gemm_padding

        monkeypatch.setattr(gemm_padding, "_GAIN", 0.0)
        sizes = [(56, 72, 83), (83, 72, 56), (56, 83, 72), (89, 91, 97), (1, 83, 5), (5, 1, 83)]
    for m, k, n in sizes:
        for left, right in (("rows", "rows"), ("columns", "columns"), ("gapped", "gapped columns")):
            a, b = LAYOUTS[left](_numbers((m, k), dtype)), LAYOUTS[right](_numbers((k, n), dtype))
            found = gpu.functional.mm(gpu.tensor(a), gpu.tensor(b))
            expected = a.double() @ b.double()
            error = (to_torch(gpu.numpy(found)).double() - expected).norm() / expected.norm()
            assert error < (4e-3 if dtype is torch.bfloat16 else 1e-3), f"{(m, k, n)} {left} {right}"


def _switched(gpu: EngineAdapter, name: str, value: Any) -> None:
    gpu.context.switches = gpu.context.switches.with_setting(name, value)


@pytest.fixture
def default_switches(gpu: EngineAdapter) -> Iterator[None]:
    before = gpu.context.switches
    yield
    gpu.context.switches = before


@pytest.mark.usefixtures("default_switches")
def test_tensorfloat_is_used_only_where_allowed(gpu: EngineAdapter) -> None:
    torch.manual_seed(11)
    a, b = torch.randn(256, 512), torch.randn(512, 128)
    expected = a.double() @ b.double()

    def error() -> float:
        found = to_torch(gpu.numpy(gpu.functional.mm(gpu.tensor(a), gpu.tensor(b))))
        return ((found.double() - expected).norm() / expected.norm()).item()

    exact = error()
    _switched(gpu, "allow_tf32", True)
    rounded = error()
    _switched(gpu, "allow_tf32", False)
    assert exact < 1e-6 < 1e-5 < rounded < 1e-3
    assert error() == exact


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("library", ["cublas", "cublaslt", "own"])
def test_every_library_gives_the_same(gpu: EngineAdapter, library: str) -> None:
    torch.manual_seed(12)
    _switched(gpu, "preferred_blas_library", library)
    for dtype, (m, k, n) in itertools.product(FLOATS, SIZES):
        a, b, bias = _numbers((m, k), dtype), _numbers((k, n), dtype), _numbers((n,), dtype)
        _compare(gpu, "mm", [a, _transposed(b)], k, library)
        _compare(gpu, "addmm", [bias, a, b], k, library, beta=2)
        _compare(gpu, "addmm", [_numbers((m, n), dtype), a, b], k, library, beta=2)
        _compare(gpu, "linear", [a, _numbers((n, k), dtype), bias], k, library)
        _compare(gpu, "bmm", [_numbers((3, m, k), dtype), _numbers((3, k, n), dtype)], k, library)


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_reduced_precision_reductions_can_be_forbidden(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(13)
    _switched(gpu, f"allow_{'fp16' if dtype is torch.float16 else 'bf16'}_reduced_precision_reduction", False)
    _compare(gpu, "mm", [_numbers((16, 8192), dtype), _numbers((8192, 16), dtype)], 8192)


@pytest.mark.usefixtures("default_switches")
def test_tuning_chooses_measures_once_and_changes_no_result(gpu: EngineAdapter) -> None:
    from server.engine.tuning import Tuner

    torch.manual_seed(14)
    tuner = Tuner()
    tuner.set(True, 5, 10)
    gpu.context.switches = gpu.context.switches.with_tuner(tuner)
    a, b, c = torch.randn(64, 96), torch.randn(96, 80), torch.randn(64, 80)
    _compare(gpu, "mm", [a, b], 96)
    _compare(gpu, "addmm", [c, a, b], 96, beta=2)
    value = gpu.tensor(c)
    gpu.functional.addmm_(value, gpu.tensor(a), gpu.tensor(b), beta=2)
    _check(gpu, value, torch.addmm(c.double(), a.double(), b.double(), beta=2), 96, "addmm_")
    before = tuner.lines()
    assert len(before) == 2
    assert all(float(line[3]) > 0 for line in before)
    _compare(gpu, "mm", [a, b], 96)
    assert tuner.lines() == before


def test_products_can_be_captured_in_graphs(gpu: EngineAdapter) -> None:
    import cupy as cp

    torch.manual_seed(15)
    for dtype in (torch.float32, torch.bfloat16):
        a, b = gpu.tensor(_numbers((64, 64), dtype)), gpu.tensor(_numbers((64, 64), dtype))
        expected = gpu.numpy(gpu.functional.mm(a, b))
        stream = cp.cuda.get_current_stream()
        stream.begin_capture()
        result = gpu.functional.mm(a, b)
        graph = stream.end_capture()
        result.array[...] = 0
        graph.launch(stream)
        assert np.array_equal(gpu.numpy(result), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sizes_near_each_other_are_asked_for_once_and_those_that_come_again_on_their_own(
    gpu: EngineAdapter, seed: int, dtype: torch.dtype
) -> None:
    from server.engine.cuda.runtime.provisional import ASKED_AT
    from server.library_choices import library_choices

    torch.manual_seed(seed)
    weight, bias = _numbers((96, 72), dtype), _numbers((96,), dtype)
    asked, borrowed = library_choices.asked, library_choices.borrowed
    for rows in range(1032, 1500, 24):
        _compare(gpu, "linear", [_numbers((rows, 72), dtype), weight, bias], 72)
        _compare(gpu, "mm", [_numbers((96, rows), dtype), _numbers((rows, 72), dtype)], rows)
    assert library_choices.asked - asked < 10
    assert library_choices.borrowed - borrowed > 20
    given = [_numbers((1128, 72), dtype), weight, bias]
    asked = library_choices.asked
    for _ in range(2 * ASKED_AT):
        _compare(gpu, "linear", given, 72)
    assert library_choices.asked - asked == 1
