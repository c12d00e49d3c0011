"""Generated CUDA kernels: every layout, type and edge gives what the host, or double precision, gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.generic_kernels.kernel import GenericKernel
from telegrad_protocol.errors import NotSupportedError

from .adapters import TORCH_TO_OURS, EngineAdapter, to_torch

pytestmark = pytest.mark.gpu

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ALL = (*REALS, *INTEGERS, torch.bool, torch.complex64, torch.complex128)
TINY = {torch.float32: 1e-45, torch.float64: 5e-324, torch.float16: 6e-8, torch.bfloat16: 1e-40}


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(scope="module")
def host() -> EngineAdapter:
    return EngineAdapter("cpu")


@pytest.fixture
def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _random(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers that every type holds exactly, special ones among those of floating-point types."""
    drawn = torch.randint(0 if dtype is torch.uint8 else -9, 10, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(drawn.double(), drawn.flip(0).double() if drawn.ndim else drawn.double()).to(dtype)
    found = drawn.to(dtype)
    if dtype.is_floating_point and found.numel() > 8:
        places = torch.randint(0, found.numel(), (6,), generator=generator)
        special = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, TINY[dtype], -TINY[dtype]])
        found.view(-1)[places] = special.double().to(dtype)
    return found


def _layouts(generator: torch.Generator, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Tensors of shape (37, 50) that lie in memory in many ways."""

    def drawn(*shape: int) -> torch.Tensor:
        return _random(generator, shape, dtype)

    yield drawn(37, 50)
    yield drawn(50, 37).t()
    yield drawn(38, 51)[1:, 1:]
    yield drawn(37, 100)[:, ::2]
    yield drawn(37 * 50 + 3)[3:].view(37, 50)
    yield drawn(37 * 50 + 3)[1 : 37 * 50 + 1].view(37, 50)
    yield drawn(50).expand(37, 50)
    yield drawn(37, 1).expand(37, 50)
    yield drawn(1, 1).expand(37, 50)
    yield drawn(2, 37, 50, 2)[1, :, :, 1]


def _same(found: np.ndarray, expected: torch.Tensor) -> None:
    torch.testing.assert_close(to_torch(found), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_operands_of_all_layouts_are_added(gpu: EngineAdapter, generator: torch.Generator, dtype: torch.dtype) -> None:
    gpu.activate()
    for x, y in itertools.product(_layouts(generator, dtype), _layouts(generator, dtype)):
        found = gpu.functional.add(gpu.tensor(x), gpu.tensor(y))
        expected = x.double() + y.double() if dtype.is_floating_point else x + y
        _same(gpu.numpy(found), expected.to(dtype))
        assert gpu.strides(found) == (x + y).stride()


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_copies_keep_every_bit(gpu: EngineAdapter, generator: torch.Generator, dtype: torch.dtype) -> None:
    gpu.activate()
    shapes = [(64, 96), (3, 65, 130), (5, 33, 34, 2), (2, 40, 3, 70), (128, 64)]
    sources = [*_layouts(generator, dtype)]
    for shape in shapes:
        full = _random(generator, shape, dtype)
        sources += [full.permute(order) for order in itertools.permutations(range(len(shape)))]
        sources.append(full.transpose(0, -1)[1:, ..., 1:])
    for source in sources:
        value = gpu.tensor(source)
        for found in (gpu.functional.clone(value), gpu.functional._in_layout(value, value.meta.like().strides)):
            bits = to_torch(gpu.numpy(found))
            assert torch.equal(_bytes(bits), _bytes(source))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def test_a_nan_is_copied_with_its_payload(gpu: EngineAdapter) -> None:
    gpu.activate()
    for bits, dtype in ((0x7F81, torch.bfloat16), (0x7C01, torch.float16), (0xFFF3, torch.bfloat16)):
        source = torch.full((33,), bits - (1 << 16) if bits >> 15 else bits, dtype=torch.int16).view(dtype)
        found = to_torch(gpu.numpy(gpu.functional.clone(gpu.tensor(source))))
        assert torch.equal(found.view(torch.int16), source.view(torch.int16))


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_types_are_converted_as_pytorch_does(
    gpu: EngineAdapter, generator: torch.Generator, source: torch.dtype, target: torch.dtype
) -> None:
    gpu.activate()
    for x in (_random(generator, (101, 67), source).t(), _random(generator, (1003,), source)[1:]):
        if not target.is_floating_point and not target.is_complex:
            x = torch.where(x.isfinite(), x, 3).to(source)
            x = x.abs().to(source) if target is torch.uint8 and source is not torch.bool else x
        found = gpu.functional._to_copy(gpu.tensor(x), dtype=gpu.convert(target))
        _same(gpu.numpy(found), x.to(target))


UNARY = {
    "exp": (-80, 80), "exp2": (-100, 100), "expm1": (-20, 20), "log": (0, 1e4), "log2": (0, 1e4), "log10": (0, 1e4),
    "log1p": (-1, 1e4), "sin": (-100, 100), "cos": (-100, 100), "tan": (-1.5, 1.5), "asin": (-1, 1), "acos": (-1, 1),
    "atan": (-50, 50), "sinh": (-50, 50), "cosh": (-50, 50), "tanh": (-10, 10), "asinh": (-1e3, 1e3),
    "acosh": (1, 1e3), "atanh": (-1, 1), "sqrt": (0, 1e4), "rsqrt": (1e-3, 1e4), "reciprocal": (-10, 10),
    "sigmoid": (-30, 30), "erf": (-4, 4), "erfc": (-4, 4), "erfinv": (-1, 1), "lgamma": (0.1, 50),
    "digamma": (0.1, 50), "square": (-10, 10), "frac": (-50, 50), "floor": (-50, 50), "round": (-50, 50),
}  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "silu", "elu", "selu", "celu", "softplus", "mish", "logsigmoid", "hardswish", "relu6",
               "hardsigmoid", "leaky_relu", "hardtanh", "softshrink", "hardshrink")  # fmt: skip
RELATIVE = {torch.float32: 2e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def _close_to_double(found: np.ndarray, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = RELATIVE[dtype]
    torch.testing.assert_close(
        to_torch(found).double(), expected.to(dtype).double(), rtol=tolerance, atol=tolerance / 8, equal_nan=True
    )


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_agree_with_double_precision(
    gpu: EngineAdapter, generator: torch.Generator, name: str, dtype: torch.dtype
) -> None:
    gpu.activate()
    low, high = UNARY[name]
    x = (torch.rand(1001, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)
    found = gpu.function(name)(gpu.tensor(x))
    _close_to_double(gpu.numpy(found), getattr(torch, name)(x.double()), dtype)


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_double_precision(
    gpu: EngineAdapter, generator: torch.Generator, name: str, dtype: torch.dtype
) -> None:
    gpu.activate()
    x = (torch.randn(1001, generator=generator, dtype=torch.float64) * 4).to(dtype)
    found = gpu.function(name)(gpu.tensor(x))
    _close_to_double(gpu.numpy(found), getattr(torch.nn.functional, name)(x.double()), dtype)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_denormals_are_numbers_like_others(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    gpu.activate()
    x = torch.tensor([TINY[dtype] * k for k in (1, 2, 3, 1000)], dtype=dtype)
    for name in ("add", "sub", "maximum"):
        found = gpu.function(name)(gpu.tensor(x), gpu.tensor(x.flip(0)))
        _same(gpu.numpy(found), getattr(torch, name)(x, x.flip(0)))
    _same(gpu.numpy(gpu.functional.mul(gpu.tensor(x), 3)), x * 3)
    _same(gpu.numpy(gpu.functional.div(gpu.tensor(x), 2)), x / 2)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_quotients_and_roots_are_correctly_rounded(
    gpu: EngineAdapter, generator: torch.Generator, dtype: torch.dtype
) -> None:
    gpu.activate()
    x, y = (torch.randn(5003, generator=generator, dtype=dtype) for _ in range(2))
    _same(gpu.numpy(gpu.functional.div(gpu.tensor(x), gpu.tensor(y))), x / y)
    roots = np.sqrt(x.abs().numpy())  # PyTorch's own on the host are not
    _same(gpu.numpy(gpu.functional.sqrt(gpu.tensor(x.abs()))), torch.from_numpy(roots))


def test_results_in_place_see_their_operands_as_they_were(gpu: EngineAdapter, generator: torch.Generator) -> None:
    gpu.activate()
    functional = gpu.functional
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        x = torch.randint(0, 9, (64, 64), generator=generator).to(dtype)
        value = gpu.tensor(x)
        functional.add_(value, functional.t(value))
        _same(gpu.numpy(value), x + x.t())
        flat = torch.arange(20000).remainder(100).to(dtype)
        value = gpu.tensor(flat)
        functional.copy_(functional.narrow(value, 0, 1, 19999), functional.narrow(value, 0, 0, 19999))
        _same(gpu.numpy(value), torch.cat((flat[:1], flat[:-1])))
        value = gpu.tensor(x)
        functional.mul_(value, functional.select(value, 0, 3))
        _same(gpu.numpy(value), x * x[3])


def test_tensors_without_elements_launch_nothing(gpu: EngineAdapter) -> None:
    gpu.activate()
    functional, x = gpu.functional, torch.empty(0, 5)
    value = gpu.tensor(x)
    made = [
        functional.add(value, value), functional.exp(value), functional.clone(functional.t(value)),
        functional.rand_like(value), functional.zeros_like(value), functional.native_dropout(value, 0.5, True)[0],
        functional.cat((value, value)), functional.tril(value),
    ]  # fmt: skip
    for found in made:
        assert found.numel == 0


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool), ids=str)
def test_joining_agrees_with_pytorch(gpu: EngineAdapter, generator: torch.Generator, dtype: torch.dtype) -> None:
    gpu.activate()
    for dim in (0, 1, 2):
        parts = [_random(generator, tuple(n if d == dim else 7 for d in range(3)), dtype) for n in (1, 5, 0, 33)]
        parts.append(_random(generator, (7, 7, 7), dtype).transpose(0, 2))
        _same(gpu.numpy(gpu.functional.cat([gpu.tensor(p) for p in parts], dim)), torch.cat(parts, dim))
    same = [_random(generator, (6, 9), dtype), _random(generator, (9, 6), dtype).t()]
    for dim in (0, 1, 2):
        _same(gpu.numpy(gpu.functional.stack([gpu.tensor(p) for p in same], dim)), torch.stack(same, dim))


def test_repeating_and_padding_agree_with_pytorch(gpu: EngineAdapter, generator: torch.Generator) -> None:
    gpu.activate()
    for dtype in (torch.float32, torch.bfloat16, torch.uint8):
        for source in (_random(generator, (3, 5, 7), dtype), _random(generator, (7, 5, 3), dtype).transpose(0, 2)):
            value = gpu.tensor(source)
            for repeats in ((2, 1, 3), (4, 2, 1, 1), (1, 1, 1), (0, 2, 2)):
                _same(gpu.numpy(gpu.functional.repeat(value, repeats)), source.repeat(repeats))
            for pad in ((1, 2), (0, 0, 3, 1), (-1, -2, 2, 2), (2, -3), (), (-4, -3), (1, 1, 1, 1, 1, 1)):
                expected = torch.nn.functional.pad(source, pad, value=3)
                _same(gpu.numpy(gpu.functional.constant_pad_nd(value, pad, 3)), expected)


RANDOM: dict[str, Any] = {
    "rand": lambda F, **o: F.rand(7, 11, **o), "randn": lambda F, **o: F.randn(7, 11, **o),
    "rand_like": None, "randn_like": None, "bernoulli_": 0.3, "uniform_": (-2.0, 5.0), "normal_": (3.0, 0.5),
    "exponential_": 2.5, "random_": (), "random_range": (-100, 1 << 40),
}  # fmt: skip


def _drawn(adapter: EngineAdapter, name: str, source: torch.Tensor) -> Any:
    functional, value = adapter.functional, adapter.tensor(source)
    adapter.activate()
    adapter.context.generators[adapter.device].manual_seed(1234)
    if name in ("rand", "randn"):
        return RANDOM[name](functional, dtype=value.dtype, device=adapter.device)
    if name.endswith("_like"):
        return getattr(functional, name)(value)
    if name == "random_range":
        return functional.random_(value, *RANDOM[name])
    given = RANDOM[name] if isinstance(RANDOM[name], tuple) else (RANDOM[name],)
    return getattr(functional, name)(value, *given)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_the_host(
    gpu: EngineAdapter, host: EngineAdapter, name: str, dtype: torch.dtype
) -> None:
    from telegrad_protocol.errors import TelegradError

    for source in (torch.zeros(41, 53), torch.zeros(53, 41).t(), torch.zeros(4099)[1:], torch.zeros(())):
        try:
            expected = _drawn(host, name, source.to(dtype))
        except TelegradError:
            continue
        found = _drawn(gpu, name, source.to(dtype))
        relative = 0 if name not in ("randn", "randn_like", "normal_", "exponential_") else RELATIVE.get(dtype, 1e-6)
        torch.testing.assert_close(
            to_torch(gpu.numpy(found)), to_torch(host.numpy(expected)), rtol=relative, atol=relative
        )
        assert gpu.context.generators[gpu.device].offset == host.context.generators[host.device].offset


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_dropout_drops_what_the_host_drops(gpu: EngineAdapter, host: EngineAdapter, dtype: torch.dtype) -> None:
    for source in (torch.ones(37, 53), torch.ones(53, 37).t(), torch.arange(4099.0)[2:] / 64):
        results = []
        for adapter in (gpu, host):
            adapter.activate()
            adapter.context.generators[adapter.device].manual_seed(77)
            output, mask = adapter.functional.native_dropout(adapter.tensor(source.to(dtype)), 0.3, True)
            results.append([to_torch(adapter.numpy(v)) for v in (output, mask)])
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_ranges_and_matrices_agree_with_the_host(gpu: EngineAdapter, host: EngineAdapter) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        results = []
        for adapter in (gpu, host):
            adapter.activate()
            functional, o = adapter.functional, {"dtype": adapter.convert(dtype), "device": adapter.device}
            found = [functional.arange(100, **o), functional.arange(3, 77, 2, **o), functional.linspace(2, 90, 33, **o),
                     functional.eye(5, 9, **o), functional.eye(9, 5, **o), functional.full((3, 5), 7, **o),
                     functional.logspace(0, 2, 9, **o)]  # fmt: skip
            matrix = functional.reshape(functional.arange(120, **o), (2, 6, 10))
            found += [functional.tril(matrix, k) for k in (-20, -2, 0, 3, 20)]
            found += [functional.triu(functional.transpose(matrix, 1, 2), k) for k in (-2, 0, 3)]
            results.append([to_torch(adapter.numpy(v)) for v in found])
        for found, expected in zip(*results, strict=True):
            relative = 1e-12 if dtype is torch.float64 else 0
            torch.testing.assert_close(found, expected, rtol=relative, atol=0)


def _ends(gpu: EngineAdapter, value: Any, start: int, length: int) -> list[float]:
    return gpu.numpy(gpu.functional.narrow(value, 0, start, length)).astype(np.float64).tolist()


@pytest.mark.parametrize("name", ("uint8", "bfloat16"))
def test_more_than_two_to_the_31_elements_are_reached(gpu: EngineAdapter, name: str) -> None:
    from telegrad_protocol import dtypes

    gpu.activate()
    functional, count = gpu.functional, (1 << 32) + 10
    x = functional.zeros(count, dtype=dtypes.BY_NAME[name], device=gpu.device)
    functional.add_(functional.narrow(x, 0, 1, count - 1), 3)
    assert _ends(gpu, x, 0, 3) == [0, 3, 3]
    assert _ends(gpu, x, count - 2, 2) == [3, 3]
    functional.fill_(functional.narrow(x, 0, count - 4, 1), 9)
    every_second = functional.slice(x, 0, 0, count, 2)
    halves = functional.add(every_second, every_second)
    assert _ends(gpu, halves, (count // 2) - 3, 3) == [6, 18, 6]
    drawn = functional.random_(x, 0, 100)
    assert len(set(_ends(gpu, drawn, count - 200, 200))) > 20


def test_complex32_is_stored_converted_and_computed_in_complex64(
    gpu: EngineAdapter, generator: torch.Generator
) -> None:
    F = gpu.functional
    x = _random(generator, (37, 50), torch.complex64)  # small whole numbers, whose sums have no rounding
    narrow = F._to_copy(gpu.tensor(x), dtype=TORCH_TO_OURS[torch.complex32])
    for made, reference in (
        (narrow, x), (F.clone(F.t(narrow)), x.t()), (F.cat([narrow, narrow], 1), torch.cat([x, x], 1)),
        (F.add(narrow, narrow), x + x),
    ):  # fmt: skip
        _same(gpu.numpy(F._to_copy(made, dtype=TORCH_TO_OURS[torch.complex64])), reference)
    with pytest.raises(NotSupportedError, match=r"compute with cfloat\(\)"):
        narrow.array  # noqa: B018


@pytest.mark.parametrize(("target", "other"), [*itertools.permutations(REALS, 2)], ids=str)
def test_targets_of_another_type_are_computed_in_both_types_and_rounded_once(
    gpu: EngineAdapter,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
    target: torch.dtype,
    other: torch.dtype,
) -> None:
    gpu.activate()
    monkeypatch.setattr(GenericKernel, "_write", lambda *_: pytest.fail("a kernel of the array library"))
    digits = 0 if target.itemsize == 2 else 2 * torch.finfo(target).eps  # products and sums may be rounded as one
    for x in _layouts(generator, target):
        y = torch.randn(50, generator=generator).to(other)
        if 0 not in x.stride():
            value = gpu.tensor(x)
            gpu.functional.add_(value, gpu.tensor(y), alpha=0.3)
            added = to_torch(gpu.numpy(value))
            torch.testing.assert_close(added, x.clone().add_(y, alpha=0.3), rtol=digits, atol=digits, equal_nan=True)
            _same(gpu.numpy(gpu.functional.mul_(value, gpu.tensor(y))), added.mul_(y))
