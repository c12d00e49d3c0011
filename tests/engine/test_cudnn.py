"""cuDNN's kernels against float64 on the host, in every layout, and what is left to the generic ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.context import CudnnModes
from telegrad_protocol.errors import NotSupportedError
from tests.ops.adapters import EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 2e-3, torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float64: 1e-9}


@pytest.fixture(scope="module")
def adapter(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def _active(adapter: EngineAdapter) -> Iterator[None]:
    adapter.activate()
    yield
    adapter.context.cudnn = CudnnModes()


@pytest.fixture
def seed(seed: int) -> int:
    """The printed seed, which PyTorch draws from too."""
    torch.manual_seed(seed)
    return seed


def _close(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within the rounding of the largest element: sums of products cancel."""
    assert found.shape == expected.shape
    largest = max(expected.abs().max().item(), 1.0) if expected.numel() else 1.0
    difference = (found.double() - expected.double()).abs().max().item() if expected.numel() else 0.0
    assert difference <= tolerance * largest, f"{name} differs by {difference:.3g} where the largest is {largest:.3g}"


def _results(adapter: EngineAdapter, function: Any, tensors: list[torch.Tensor], cotangent: torch.Tensor) -> list[Any]:
    """The result of an engine function and its gradients by all tensors."""
    values = [adapter.tensor(t, True) for t in tensors]
    out = function(*values)
    found = adapter.grad([out], [adapter.tensor(cotangent)], values, False)
    return [to_torch(adapter.numpy(v)) for v in (out, *found)]


def _check(
    adapter: EngineAdapter, ours: Any, theirs: Any, tensors: list[torch.Tensor], tolerance: float, spread: bool = False
) -> None:
    doubles = [t.detach().double().contiguous().requires_grad_() for t in tensors]
    expected = theirs(*doubles)
    cotangent = torch.randn(expected.shape).to(tensors[0].dtype)
    if spread:
        cotangent = cotangent.flatten()[0].expand(expected.shape)
    gradients = torch.autograd.grad(expected, doubles, cotangent.double())
    found = _results(adapter, ours, tensors, cotangent)
    names = ("the result", *(f"gradient {i}" for i in range(len(tensors))))
    for name, mine, reference in zip(names, found, [expected.detach(), *gradients], strict=True):
        _close(name, mine, reference, tolerance)


ATTENTIONS = [
    (2, 3, 3, 64, 64, 32, 32), (1, 4, 2, 100, 37, 64, 64), (2, 2, 2, 33, 129, 128, 64), (1, 8, 1, 257, 257, 96, 96),
    (3, 1, 1, 1, 70, 8, 8), (1, 2, 2, 40, 40, 256, 256), (1, 2, 2, 20, 30, 20, 20),
]  # fmt: skip


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", ATTENTIONS, ids=str)
def test_attention_and_its_gradients(
    adapter: EngineAdapter, seed: int, sizes: tuple[int, ...], dtype: torch.dtype, is_causal: bool
) -> None:
    batch, heads, shared, length, columns, width, made = sizes
    shapes = [(batch, length, heads, width), (batch, columns, shared, width), (batch, columns, shared, made)]
    tensors = [torch.randn(shape).to(dtype).transpose(1, 2) for shape in shapes]
    options = {"is_causal": is_causal, "enable_gqa": True, "scale": 0.2}

    def theirs(*operands: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*operands, **options)

    def ours(*operands: Any) -> Any:
        return adapter.functional.scaled_dot_product_attention(*operands, **options)

    _check(adapter, ours, theirs, tensors, TOLERANCES[dtype])
    _check(adapter, ours, theirs, [t.contiguous() for t in tensors], TOLERANCES[dtype], spread=True)


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_attention_on_parts_of_one_projection(adapter: EngineAdapter, seed: int, offset: int) -> None:
    packed = torch.randn(2, 50, 3 * 4 * 32 + 16).to(torch.bfloat16)[..., offset : offset + 3 * 4 * 32]

    def split(x: Any, functional: Any) -> Any:
        parts = [functional.reshape(functional.narrow(x, 2, i * 128, 128), (2, 50, 4, 32)) for i in range(3)]
        return [functional.transpose(part, 1, 2) for part in parts]

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*split(x, torch), is_causal=True)

    def ours(x: Any) -> Any:
        return adapter.functional.scaled_dot_product_attention(*split(x, adapter.functional), is_causal=True)

    _check(adapter, ours, theirs, [packed], TOLERANCES[torch.bfloat16])


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 8, 14, 14), (16, 8, 3, 3), {"padding": 1}), ((2, 8, 15, 13), (16, 8, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 8, 9, 9), (8, 8, 1, 1), {}), ((2, 3, 17, 17), (5, 3, 5, 3), {"stride": (2, 1), "padding": (2, 0)}),
    ((2, 8, 14, 14), (16, 4, 3, 3), {"groups": 2, "dilation": 2}), ((2, 6, 9, 9), (6, 1, 3, 3), {"groups": 6}),
    ((2, 8, 20), (12, 8, 5), {"padding": 2, "stride": 3}), ((1, 4, 6, 7, 8), (8, 4, 3, 3, 3), {"padding": 1}),
    ((8, 9, 9), (8, 8, 3, 3), {"padding": 1}), ((2, 1, 5, 5), (1, 1, 5, 5), {}),
]  # fmt: skip
LAYOUTS = {"rows": 0, "channels": 1, "mixed": 2}


def _laid_out(tensors: list[torch.Tensor], layout: str) -> list[torch.Tensor]:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    count = {"rows": 0, "channels": 2, "mixed": 1}[layout]
    return [
        t.contiguous(memory_format=formats[t.ndim]) if i < count and t.ndim in formats else t
        for i, t in enumerate(tensors)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: f"{c[0]}-{c[1]}")
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_convolution_and_its_gradients(
    adapter: EngineAdapter, seed: int, case: Any, dtype: torch.dtype, layout: str, transposed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("server.engine.cuda.conv.new_sizes.PLANNED_AT_ONCE", 0)
    shape, kernel, options = case
    dims, groups = len(kernel) - 2, options.get("groups", 1)
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    if transposed:
        lead = (kernel[0],) if len(shape) == dims + 1 else (shape[0], kernel[0])
        shape = (*lead, *shape[-dims:])
    made = kernel[1] * groups if transposed else kernel[0]
    tensors = [torch.randn(shape).to(dtype), torch.randn(kernel).to(dtype), torch.randn(made).to(dtype)]
    theirs = getattr(torch.nn.functional, name)
    ours = getattr(adapter.functional, name)
    for spread in (False, False, True, False):  # the third time has a plan where the first ones have none
        _check(
            adapter, lambda *a: ours(*a, **options), lambda *a: theirs(*a, **options), _laid_out(tensors, layout),
            TOLERANCES[dtype], spread,
        )  # fmt: skip


@pytest.mark.parametrize("modes", [CudnnModes(), CudnnModes(deterministic=True), CudnnModes(benchmark=True)], ids=str)
def test_a_small_convolution_is_asked_about_when_it_comes_again(
    adapter: EngineAdapter, seed: int, modes: CudnnModes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing sizes begin without a plan, but where a session wants the same or the fastest results."""
    from server.engine.cuda.runtime.cudnn_graph import BUILT

    monkeypatch.setattr("server.engine.cuda.conv.new_sizes.PLANNED_AT_ONCE", 0)
    adapter.context.cudnn = modes
    side, width = 23 + 2 * int(torch.randint(100, ())), 21 + 2 * modes.benchmark + modes.deterministic
    tensors = [torch.randn(2, 3, side, width).half(), torch.randn(5, 3, 3, 3).half()]
    built = [BUILT.graphs]
    for _ in range(4):
        both = adapter.functional.conv2d, torch.nn.functional.conv2d
        _check(adapter, *both, tensors, TOLERANCES[torch.float16])
        built.append(BUILT.graphs)
    begins_with_none = modes == CudnnModes()
    assert [after > before for before, after in pairwise(built)] == [
        not begins_with_none, False, begins_with_none, False,
    ]  # fmt: skip


def test_convolution_of_misaligned_and_strided_operands(adapter: EngineAdapter, seed: int) -> None:
    x = torch.randn(2, 9, 12, 25).to(torch.bfloat16)[:, 1:, :, 1::2]
    w = torch.randn(4, 8, 3, 3).to(torch.bfloat16).flip(0)[1:]
    convolve = torch.nn.functional.conv2d
    _check(adapter, adapter.functional.conv2d, convolve, [x, w], TOLERANCES[torch.bfloat16])


def test_single_precision_is_exact_where_tensorfloat_is_off(adapter: EngineAdapter, seed: int) -> None:
    tensors = [torch.randn(4, 64, 16, 16), torch.randn(64, 64, 3, 3)]
    ours, theirs = adapter.functional.conv2d, torch.nn.functional.conv2d
    for modes, tolerance in ((CudnnModes(allow_tf32=False), 1e-5), (CudnnModes(), 2e-3)):
        adapter.context.cudnn = modes
        for layout in ("rows", "channels"):
            _check(adapter, ours, theirs, _laid_out(tensors, layout), tolerance)


def test_deterministic_gradients_are_equal_to_the_bit(adapter: EngineAdapter, seed: int) -> None:
    adapter.context.cudnn = CudnnModes(deterministic=True)
    x, w = torch.randn(8, 64, 28, 28).half(), torch.randn(64, 64, 3, 3).half()
    d = torch.randn(8, 64, 26, 26).half()
    first, second = (_results(adapter, adapter.functional.conv2d, [x, w], d) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nothing_is_computed_of_nothing(adapter: EngineAdapter) -> None:
    functional = adapter.functional
    empty = functional.conv2d(adapter.tensor(torch.ones(0, 3, 5, 5)), adapter.tensor(torch.ones(2, 3, 3, 3)))
    assert empty.shape == (0, 2, 3, 3)
    q, k = torch.ones(1, 2, 5, 8).half(), torch.ones(1, 2, 0, 8).half()
    found = functional.scaled_dot_product_attention(*map(adapter.tensor, (q, k, k)))
    assert adapter.numpy(found).tolist() == np.zeros((1, 2, 5, 8)).tolist()


def test_what_is_not_a_number_stays_so(adapter: EngineAdapter) -> None:
    x = torch.ones(1, 8, 6, 6).half()
    x[0, 0, 0, 0] = float("nan")
    found = adapter.numpy(adapter.functional.conv2d(adapter.tensor(x), adapter.tensor(torch.ones(8, 8, 3, 3).half())))
    assert np.isnan(found[0, :, 0, 0]).all()
    assert not np.isnan(found[0, :, 1:, 1:]).any()


def _masks() -> dict[str, torch.Tensor]:
    padding = torch.ones(2, 1, 1, 72, dtype=torch.bool)
    padding[1, ..., 50:] = False
    hidden = torch.rand(48, 72) < 0.6
    hidden[5] = False
    return {"padding": padding, "hidden": hidden, "added": torch.randn(2, 3, 48, 72), "both": torch.where(
        hidden, torch.randn(48, 72), -torch.inf)}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["padding", "hidden", "added", "both"])
def test_attention_with_masks(adapter: EngineAdapter, seed: int, kind: str, dtype: torch.dtype) -> None:
    mask = _masks()[kind]
    mask = mask if mask.dtype is torch.bool else mask.to(dtype)
    shapes = ((2, 3, 48, 32), (2, 3, 72, 32), (2, 3, 72, 32))
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]

    def theirs(*operands: torch.Tensor) -> torch.Tensor:
        wide = mask if mask.dtype is torch.bool else mask.double()
        return torch.nn.functional.scaled_dot_product_attention(*operands, attn_mask=wide)

    def ours(*operands: Any) -> Any:
        return adapter.functional.scaled_dot_product_attention(*operands, attn_mask=adapter.tensor(mask))

    _check(adapter, ours, theirs, tensors, 2 * TOLERANCES[dtype])


def test_deterministic_attention_gradients_are_equal_to_the_bit(adapter: EngineAdapter, seed: int) -> None:
    adapter.context.cudnn = CudnnModes(deterministic=True)
    q, k, v, d = (torch.randn(2, 4, 513, 64).half() for _ in range(4))
    attend = adapter.functional.scaled_dot_product_attention
    first, second = (_results(adapter, lambda *a: attend(*a, is_causal=True), [q, k, v], d) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "sizes", [(3, 24, 7, 5, 40), (4, 64, 7, 7, 32), (1, 16, 1, 1, 8), (5, 8, 1, 3, 1), (2, 1, 9, 9, 8)]
)
def test_convolutions_that_are_products(
    adapter: EngineAdapter, seed: int, sizes: tuple[int, ...], dtype: torch.dtype
) -> None:
    batch, read, height, width, made = sizes
    images, weight = torch.randn(batch, read, height, width).to(dtype), torch.randn(made, read, 1, 1).to(dtype)
    both = adapter.functional.conv2d, torch.nn.functional.conv2d
    for tensors in ([images, weight], [t.contiguous(memory_format=torch.channels_last) for t in (images, weight)]):
        _check(adapter, *both, tensors, TOLERANCES[dtype])
        padded = [torch.cat([t, t], 1)[:, : t.shape[1]] for t in tensors]  # channels lie apart
        _check(adapter, *both, padded, TOLERANCES[dtype])


def test_the_fastest_of_several_plans_gives_the_same_results(adapter: EngineAdapter, seed: int) -> None:
    from server.engine.cuda.runtime import cudnn_graph

    adapter.context.cudnn = CudnnModes(benchmark=True)
    spent = cudnn_graph.BUILT.seconds
    images, weight = torch.randn(4, 16, 23, 23).half(), torch.randn(32, 16, 3, 3).half()
    convolve, attend = adapter.functional.conv2d, adapter.functional.scaled_dot_product_attention
    for _ in range(2):
        _check(adapter, convolve, torch.nn.functional.conv2d, [images, weight], TOLERANCES[torch.float16])
    assert cudnn_graph.BUILT.seconds > spent
    tensors = [torch.randn(2, 4, 96, 64).half() for _ in range(3)]
    theirs = torch.nn.functional.scaled_dot_product_attention
    for benchmark in (True, True, False):  # what was built last must not be what runs then
        adapter.context.cudnn = CudnnModes(benchmark=benchmark)
        _check(adapter, attend, theirs, tensors, 2 * TOLERANCES[torch.float16])


DROPOUT = 0.25


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "masked", "shared"])
def test_attention_drops_the_same_weights_on_its_way_back(
    adapter: EngineAdapter, seed: int, kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the identity as values attention makes its weights, those that were dropped 0."""
    from server.engine.backward import backward
    from server.engine.ops.layers import attention

    monkeypatch.setattr(attention, "_attention_math", None)
    batch, heads, length = 4, 8, 64
    shared = 2 if kind == "shared" else heads
    made = [torch.randn(batch, n, length, length).to(dtype) for n in (heads, shared)]
    made.append(torch.eye(length).expand(batch, shared, length, length).to(dtype).contiguous())
    grad = torch.randn(batch, heads, length, length).to(dtype)
    mask = torch.rand(length, length) < 0.8 if kind == "masked" else None
    options: dict[str, Any] = {"is_causal": kind == "causal", "enable_gqa": kind == "shared", "scale": 0.1}
    values = [adapter.tensor(tensor, True) for tensor in made]
    ours = options if mask is None else {**options, "attn_mask": adapter.tensor(mask)}
    found = adapter.functional.scaled_dot_product_attention(*values, dropout_p=DROPOUT, **ours)
    weights = to_torch(adapter.numpy(found)).double()
    backward([found], [adapter.tensor(grad)])

    wide = [tensor.double().requires_grad_() for tensor in made]
    spread = [wide[0], *[each.repeat_interleave(heads // shared, 1) for each in wide[1:]]]
    seen = torch.ones(length, length, dtype=torch.bool).tril() if kind == "causal" else mask
    scores = spread[0] @ spread[1].mT * 0.1
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    kept = weights != 0
    share = (kept.sum() / (scores > -torch.inf).expand_as(kept).sum()).item()
    assert abs(share - (1 - DROPOUT)) < 0.02
    expected = (scores.softmax(-1) * kept / (1 - DROPOUT)) @ spread[2]
    expected.backward(grad.double())
    for mine, reference in zip([weights, *[to_torch(adapter.numpy(v.autograd.grad)).double() for v in values]],
                               [expected.detach(), *[w.grad for w in wide]], strict=True):  # fmt: skip
        scale = max(1.0, float(reference.abs().max()))
        torch.testing.assert_close(mine, reference, rtol=0, atol=4 * TOLERANCES[dtype] * scale)


def test_which_weights_are_dropped_is_a_matter_of_the_seed(adapter: EngineAdapter, seed: int) -> None:
    made = [adapter.tensor(torch.randn(2, 4, 64, 64).half()) for _ in range(3)]
    generator = adapter.context.generators[adapter.device]
    found = []
    for number in (1, 2, 1):
        generator.manual_seed(number)
        found.append(adapter.numpy(adapter.functional.scaled_dot_product_attention(*made, dropout_p=0.5)))
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    generator.manual_seed(1)
    twice = [adapter.numpy(adapter.functional.scaled_dot_product_attention(*made, dropout_p=0.5)) for _ in range(2)]
    assert not np.array_equal(*twice)


def test_gradients_of_gradients_with_dropout_are_refused(adapter: EngineAdapter) -> None:
    from server.engine.backward import grad

    q, k, v = (adapter.tensor(torch.randn(1, 2, 16, 16).half(), True) for _ in range(3))
    found = adapter.functional.sum(adapter.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    (first,) = grad([found], [None], [q], create_graph=True)
    with pytest.raises(NotSupportedError, match="dropout on a GPU"):
        grad([adapter.functional.sum(first)], [None], [q])
