"""The text of tensors against PyTorch's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad._tensor import formatting
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError

SEED = 20240
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [*FLOATS, *INTEGERS, *COMPLEX, torch.bool]
SHAPES = [(), (1,), (5,), (23,), (2, 3), (3, 1, 4), (2, 2, 3, 2), (0,), (0, 3), (2, 0, 1)]
LARGE = [(1001,), (40, 40), (3, 400), (400, 3), (7, 8, 20), (2, 6, 7, 30), (1200, 1)]
OPTIONS = [
    {},
    {"profile": "short"},
    {"profile": "full"},
    {"precision": 0},
    {"precision": 8, "linewidth": 120},
    {"linewidth": 20},
    {"linewidth": 1},
    {"threshold": 4, "edgeitems": 1},
    {"threshold": 0},
    {"threshold": 3, "edgeitems": 0},
    {"edgeitems": 0},
    {"threshold": 10, "edgeitems": 5},
    {"sci_mode": True},
    {"sci_mode": False},
]


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    for set_options in (formatting.set_printoptions, torch.set_printoptions):
        set_options(profile="default", sci_mode=None)


def set_both(**options: Any) -> None:
    formatting.set_printoptions(**options)
    torch.set_printoptions(**options)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def ours(tensor: torch.Tensor, *, summarized: bool = False, **changes: Any) -> str:
    array, plan = to_numpy(tensor), formatting.edge_ranges(tensor.shape)
    if summarized and plan is not None:
        array = formatting.take_edges(array, plan)
    arguments: dict[str, Any] = {
        "dtype": dtypes.BY_NAME[str(tensor.dtype).removeprefix("torch.")],
        "device": "cpu",
        "shape": tuple(tensor.shape),
        "requires_grad": tensor.requires_grad,
        "grad_fn": tensor.grad_fn and tensor.grad_fn.name(),
        "is_parameter": isinstance(tensor, torch.nn.Parameter),
        "summarized": summarized,
    }
    return formatting.format_tensor(array, **{**arguments, **changes})


def random_tensor(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    values = values * 10.0 ** rng.choice([-300, -6, -3, 0, 0, 0, 1, 2, 3, 7, 9, 30])
    if dtype in INTEGERS or dtype is torch.bool:
        return (torch.rand(shape, generator=generator) * 10 ** rng.randrange(4) - 3).to(dtype)
    if rng.random() < 0.4:
        values = values.round()
    if rng.random() < 0.3:
        values = values * 10.0 ** torch.randint(-4, 5, shape, generator=generator)
    for special in (0.0, -0.0, float("nan"), float("inf"), -float("inf")):
        if rng.random() < 0.25:
            values[torch.rand(shape, generator=generator) < 0.2] = special
    if dtype.is_complex:
        imaginary = random_tensor(rng, shape, torch.float64)
        return torch.complex(values, imaginary).to(dtype)
    return values.to(dtype)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_random_tensors_print_as_in_pytorch(dtype: torch.dtype) -> None:
    print("seed", SEED)
    rng = random.Random(f"{SEED} {dtype}")
    for _ in range(8):
        for shape in SHAPES:
            tensor = random_tensor(rng, shape, dtype)
            assert ours(tensor) == repr(tensor)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_prints_as_in_pytorch(options: dict[str, Any]) -> None:
    print("seed", SEED)
    rng = random.Random(f"{SEED} {options}")
    set_both(**options)
    assert formatting.get_printoptions() == torch._tensor_str.get_printoptions()
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool):
        for shape in SHAPES:
            tensor = random_tensor(rng, shape, dtype)
            assert ours(tensor) == ours(tensor, summarized=True) == repr(tensor)


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_tensors_print_their_edges_as_in_pytorch(shape: tuple[int, ...]) -> None:
    print("seed", SEED)
    rng = random.Random(f"{SEED} {shape}")
    for dtype in ALL:
        tensor = random_tensor(rng, shape, dtype)
        assert ours(tensor) == ours(tensor, summarized=True) == repr(tensor)


@pytest.mark.parametrize(
    "values",
    [
        [float("nan")] * 3,
        [float("inf"), -float("inf")],
        [0.0, -0.0],
        [1e8, 1.0],
        [1.00001e8],
        [1e-4, 0.1],
        [9.9e-5],
        [1000.0, 1.0],
        [1000.5, 1.0],
        [5e-324, 1.7976931348623157e308],
        [0.99999, 9.99999],
        [-1.5, float("nan"), 100.0],
        [2.0, float("inf")],
        [float("nan"), 1.0],
    ],
    ids=str,
)
def test_thresholds_of_notation_are_those_of_pytorch(values: list[float]) -> None:
    for dtype in FLOATS:
        assert ours(torch.tensor(values, dtype=dtype)) == repr(torch.tensor(values, dtype=dtype))


def test_gradients_and_parameters_are_named_as_in_pytorch() -> None:
    leaf = torch.ones(3, requires_grad=True)
    for tensor in (leaf, leaf + 1, (leaf * 2).sum(), torch.nn.Parameter(torch.ones(2, 2)), leaf.half().exp()):
        assert ours(tensor) == repr(tensor)
    frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    assert ours(frozen) == repr(frozen)


def test_long_lines_push_suffixes_to_the_next_line_as_in_pytorch() -> None:
    for size in range(1, 40):
        tensor = torch.ones(size, dtype=torch.float16, requires_grad=True)
        assert ours(tensor) == repr(tensor)


def test_only_devices_other_than_the_cpu_are_printed() -> None:
    tensor = torch.ones(2)
    assert ours(tensor, device="cuda:0") == "tensor([1., 1.], device='cuda:0')"
    assert ours(tensor.half(), device="cuda:1") == "tensor([1., 1.], device='cuda:1', dtype=torch.float16)"
    assert ours(tensor, device="cpu") == repr(tensor)


def test_default_dtype_goes_without_saying() -> None:
    before = torch.get_default_dtype()
    try:
        for default in (torch.float64, torch.float16, torch.bfloat16):
            torch.set_default_dtype(default)
            named = dtypes.BY_NAME[str(default).removeprefix("torch.")]
            for dtype in ALL:
                for shape in ((2,), (0,)):
                    tensor = torch.ones(shape, dtype=dtype)
                    assert ours(tensor, default_dtype=named) == repr(tensor)
    finally:
        torch.set_default_dtype(before)


def test_only_edges_are_fetched() -> None:
    assert formatting.edge_ranges((10, 100)) is None
    assert formatting.edge_ranges((1001,)) == (((0, 3), (998, 1001)),)
    assert formatting.edge_ranges((2, 10**6)) == (((0, 2),), ((0, 3), (10**6 - 3, 10**6)))
    assert formatting.edge_ranges((100, 5), formatting.PrintOptions(threshold=10, edgeitems=0)) == (
        ((0, 0), (100, 100)),
        ((0, 0), (5, 5)),
    )


def test_bad_options_are_refused_and_change_nothing() -> None:
    before = formatting.get_printoptions()
    with pytest.raises(ArgumentError, match="profile must be one of default, short, full, not 'long'"):
        formatting.set_printoptions(profile="long")
    with pytest.raises(ArgumentError, match="precision must not be negative, got -1"):
        formatting.set_printoptions(precision=-1)
    assert formatting.get_printoptions() == before


def test_printoptions_are_restored_after_the_block() -> None:
    before = formatting.get_printoptions()
    with formatting.printoptions(precision=1, sci_mode=True):
        assert formatting.get_printoptions()["precision"] == 1
    assert formatting.get_printoptions() == before
