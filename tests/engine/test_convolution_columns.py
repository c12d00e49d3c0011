"""Convolutions as products of windows are convolutions, whatever slides how. A host stands in for the device."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from server.engine import functional as F
from server.engine.context import CudnnModes
from server.engine.cuda.conv import columns, new_sizes
from server.engine.cuda.conv.windows import Slide, windows_in
from server.engine.cuda.gemm.layout import Matrices
from server.engine.cuda.gemm.product import Product
from server.engine.devices import open_device
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import CPU, Meta
from tests.ops.adapters import EngineAdapter

CASES = [
    ((2, 3, 9, 7), 4, Slide((3, 3), (1, 1), (1, 1), (1, 1))),
    ((1, 2, 8, 11), 5, Slide((3, 2), (1, 2), (0, 1), (2, 3))),
    ((3, 4, 6, 6), 2, Slide((1, 1), (1, 1), (0, 0), (1, 1))),
    ((2, 1, 10, 5), 3, Slide((4, 3), (2, 1), (3, 2), (2, 2))),
]


def _array(matrices: Matrices, value: Value) -> Any:
    """The matrices of a value as they lie in its memory."""
    item = matrices.dtype.itemsize
    reach = (
        matrices.offset + (matrices.batch - 1) * matrices.step + (matrices.rows - 1) * matrices.row_step
        + (matrices.columns - 1) * matrices.column_step + 1
    )  # fmt: skip
    memory = (ctypes.c_char * (reach * item)).from_address(value.storage.block.pointer)
    flat = np.frombuffer(memory, matrices.dtype.name)[matrices.offset :]
    steps = [step * item for step in (matrices.step, matrices.row_step, matrices.column_step)]
    return np.lib.stride_tricks.as_strided(flat, (matrices.batch, matrices.rows, matrices.columns), steps)


def _multiplication(backend: Any, product: Product) -> Launch:
    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        left, right = _array(product.left, args[product.left_at]), _array(product.right, args[product.right_at])
        _array(product.out, outs[product.out_at])[...] = left @ right

    return launch


def _unfolding(backend: Any, picture: Meta, made: Meta, slide: Slide) -> Launch:
    return lambda args, outs: outs[0].array.__setitem__(..., F.im2col(args[0], *slide).array)


def _folding(backend: Any, taken: Meta, picture: Meta, slide: Slide) -> Launch:
    return lambda args, outs: outs[0].array.__setitem__(..., F.fold(args[0], picture.shape[2:], *slide).array)


@pytest.fixture(autouse=True)
def _on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    EngineAdapter("cpu").activate()
    monkeypatch.setattr(new_sizes, "_sizes_met", {})
    for name, stand_in in (("multiplication", _multiplication), ("unfolding", _unfolding), ("folding", _folding)):
        monkeypatch.setattr(columns, name, stand_in)


def _value(array: np.ndarray[Any, Any]) -> Value:
    """The array as a value that does not begin at its memory's first element."""
    backend = open_device(CPU)
    whole = backend.empty(Meta.of((array.size + 3,), dtypes.float64, CPU))
    value = F.as_strided(whole, array.shape, [step // 8 for step in array.strides], 3)
    value.array[...] = array
    return value


@pytest.mark.parametrize(("shape", "made", "slide"), CASES)
def test_all_three_passes_are_those_of_a_convolution(
    shape: tuple[int, ...], made: int, slide: Slide, rng: np.random.Generator
) -> None:
    picture = torch.tensor(rng.standard_normal(shape), requires_grad=True)
    weight = torch.tensor(rng.standard_normal((made, shape[1], *slide.kernel)), requires_grad=True)
    expected = torch.nn.functional.conv2d(picture, weight, None, slide.stride, slide.padding, slide.dilation)
    grad = torch.tensor(rng.standard_normal(expected.shape))
    expected.backward(grad)
    x, w, g = (_value(t.detach().numpy()) for t in (picture, weight, grad))
    backend = open_device(CPU)
    assert windows_in(shape[2:], slide) == tuple(expected.shape[2:])
    for make, args, reference in (
        (columns.by_columns, (x, w), expected.detach()),
        (columns.transposed_by_columns, (g, w), picture.grad),
        (columns.weight_by_columns, (g, x), weight.grad),
    ):
        assert reference is not None
        out = _value(np.zeros(tuple(reference.shape)))
        launch = make(backend, args[0].meta, args[1].meta, slide, out.meta)
        assert launch is not None
        launch(args, (out,))
        np.testing.assert_allclose(out.array, reference.numpy(), rtol=1e-12, atol=1e-12)


def test_large_ones_and_other_numbers_of_windows_are_left_to_plans(rng: np.random.Generator) -> None:
    slide, backend = Slide((3, 3), (1, 1), (1, 1), (1, 1)), open_device(CPU)
    x, w, out = (_value(np.zeros(shape)) for shape in ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 8, 8)))
    assert columns.by_columns(backend, x.meta, w.meta, slide, out.meta) is not None
    assert columns.by_columns(backend, x.meta, w.meta, slide, out.meta.like((1, 4, 4, 16))) is None
    large = x.meta.like((64, 64, 64, 64)), w.meta.like((64, 64, 3, 3)), out.meta.like((64, 64, 64, 64))
    assert columns.by_columns(backend, large[0], large[1], slide, large[2]) is None


def _begun(side: int, done: list[str], channels: int = 3) -> Launch:
    """The launch of a convolution of this size, which notes how it is executed."""
    meta = _value(np.zeros((1, channels, side, side))).meta
    backend = SimpleNamespace(is_capturing=False, settles=False)
    request: Any = SimpleNamespace(
        op=SimpleNamespace(name="convolution"), backend=backend, args=(meta, meta), outs=(meta,)
    )

    def planned() -> Launch:
        done.append("asked")
        return lambda args, outs: done.append("plan")

    launch = new_sizes.begun(
        request, 1, (channels, "how it slides"), lambda: lambda args, outs: done.append("columns"), planned
    )
    assert launch is not None
    return launch


def test_sizes_begin_without_a_plan_once_a_kernel_has_met_several() -> None:
    done: list[str] = []
    for side in range(5, 5 + new_sizes.PLANNED_AT_ONCE):
        _begun(side, done)((), ())
    assert done == ["asked", "plan"] * new_sizes.PLANNED_AT_ONCE
    done.clear()
    launch = _begun(40, done)
    for _ in range(new_sizes.ASKED_AT + 1):
        launch((), ())
    assert done == ["columns"] * (new_sizes.ASKED_AT - 1) + ["asked", "plan", "plan"]
    done.clear()
    _begun(40, done, channels=4)((), ())
    assert done == ["asked", "plan"], "another kernel has met no size yet"


@pytest.mark.parametrize("modes", [CudnnModes(deterministic=True), CudnnModes(benchmark=True)], ids=str)
def test_who_wants_the_same_or_the_fastest_results_has_a_plan_at_once(
    modes: CudnnModes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_sizes, "PLANNED_AT_ONCE", 0)
    done: list[str] = []
    launch = _begun(9, done)
    launch((), ())
    monkeypatch.setattr(context.current, "cudnn", modes)
    launch((), ())
    _begun(11, done)((), ())
    assert done == ["columns", "asked", "plan", "asked", "plan"]
