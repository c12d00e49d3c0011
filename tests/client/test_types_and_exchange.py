"""Wide unsigned types, complex32, targets of ``out=``, DLPack, and which memory a tensor shows, against PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from telegrad.errors import ArgumentTypeError, DeviceError, DTypeError, InplaceError
from telegrad_protocol import dtypes

from .twins import OURS, assert_same, evaluate

PROGRAMS = [
    "t.tensor([1, 2, 3], dtype=t.uint16) * 2",
    "t.tensor([1, 2, 3], dtype=t.uint32) / 2",
    "t.tensor([1, 2, 3], dtype=t.uint64) == 2",
    "t.tensor([1, 2, 3], dtype=t.uint16) & 1",
    "t.tensor([6, 2, 3], dtype=t.uint32) ^ t.tensor([3, 2, 1], dtype=t.uint32)",
    "t.tensor([1, 2, 3], dtype=t.uint16) + t.tensor([1], dtype=t.uint8)",
    "t.tensor([1, 2, 3], dtype=t.uint16) + 1.5",
    "t.tensor([1, 2, 3], dtype=t.uint16).sum()",
    "t.tensor([3, 1, 2], dtype=t.uint32).sort()",
    "t.cat([t.tensor([3, 1], dtype=t.uint64), t.tensor([2], dtype=t.uint64)])",
    "t.tensor([3, 1, 2], dtype=t.uint64)[t.tensor([0, 2])]",
    "t.tensor([3, 0], dtype=t.uint32).bool()",
    "t.tensor([2**64 - 1, 1], dtype=t.uint64)",
    "t.tensor([2**64 - 1, 1], dtype=t.uint64).tolist()",
    "t.tensor([2**64 - 1, 1], dtype=t.uint64).view(t.int64)",
    "t.tensor([70000], dtype=t.uint16)",
    "t.tensor([-1], dtype=t.uint16)",
    "t.tensor([1., 300.7]).to(t.uint16)",
    "t.full((2,), 3, dtype=t.uint64)",
    "t.tensor([3], dtype=t.uint16).numpy().dtype.name",
    "t.from_numpy(np.arange(3, dtype=np.uint32)).repeat(2)",
    "str(t.iinfo(t.uint32)), str(t.finfo(t.float16)), str(t.finfo(t.complex32)), t.iinfo(t.uint64).max",
    "repr(t.tensor([1, 2], dtype=t.uint16)), repr(t.tensor([1 + 2j]).chalf())",
    "t.tensor([1 + 2j, 3]).chalf()",
    "t.tensor([1 + 2j, 3]).chalf() * 2 + 1",
    "t.tensor([1 + 2j, 3]).chalf().abs()",
    "t.tensor([1 + 2j, 3]).chalf().real",
    "t.view_as_real(t.tensor([1 + 2j, 3]).chalf())",
    "t.view_as_complex(t.ones(2, 2).half())",
    "t.tensor([1 + 2j, 3]).chalf().to(t.complex64)",
    "t.tensor([1 + 2j, 3]).chalf().float()",
    "t.tensor([1 + 2j, 3]).chalf().tolist()",
    "t.ones(2).half() * 1j",
    "t.complex(t.ones(2).half(), t.ones(2).half())",
    "[t.promote_types(t.complex32, d) for d in (t.bool, t.int8, t.float16, t.bfloat16, t.float64, t.complex64)]",
    "t.randn(2, 3, dtype=t.complex32).shape",
    "t.arange(0, 64, 0.5, out=t.empty(0, dtype=t.int64))",
    "t.arange(3, out=t.empty(0, dtype=t.float64))",
    "t.zeros(2, 3, out=t.ones(2, 3, dtype=t.int32))",
    "t.gather(t.ones(2, 2), 1, t.zeros(2, 2, dtype=t.long), out=t.empty(2, 2, dtype=t.float64))",
    "x = t.arange(6.)\nt.gather(x, 0, t.tensor([0, 1, 2]), out=x[:3])",
    "x = t.arange(6.)\nt.add(x[:3], 1, out=x[1:4])",
    "x = t.arange(6.)\nt.add(x, 1, out=x)",
    "x = t.ones(2, 3)\nt.cat([x, x], out=x)",
    "t.masked_select(t.arange(4), t.tensor([True, False, True, True]), out=t.empty(3, dtype=t.long))",
    "t.signbit(t.tensor(v), out=t.empty(5, 8, dtype=t.bool)[:, ::2])",
    "t.tensordot(t.ones(1, 1, 1), t.arange(4.).reshape(2, 1, 2), dims=[[0, 1], [2, 0]])",
    "t.rand(2, 3, out=t.empty(2, 3)).shape",
    "t.randperm(5, out=t.empty(5, dtype=t.int32)).dtype",
    "t.hash_tensor(t.tensor(v))",
    "t.hash_tensor(t.arange(6).reshape(2, 3), 1, keepdim=True)",
    "t.hash_tensor(t.tensor([True, False, True]))",
    "t.segment_reduce(t.tensor(v), 'max', lengths=t.tensor([2, 0, 3]), initial=0.5)",
    "t.segment_reduce(t.tensor(v), 'mean', lengths=t.tensor([[1, 3], [2, 2], [0, 4], [4, 0], [1, 3]]), axis=1)",
    "t.segment_reduce(t.tensor(v), 'prod', offsets=t.tensor([0, 2, 5]))",
    "t.segment_reduce(t.tensor(v), 'sum', lengths=t.tensor([1, 2]))",
    "x = t.tensor(v).requires_grad_()\nt.segment_reduce(x, 'min', lengths=t.tensor([2, 3])).sum().backward()\nx.grad",
    "x, y = t.zeros(2), t.tensor(v)\nx.set_(y)\ny[0, 0] = 7\nx, x.data_ptr() == y.data_ptr()",
    "x, y = t.zeros(2), t.arange(9.)\nx.set_(y, 2, (2, 3), (3, 1))",
    "t.zeros(2).set_()",
    "t.zeros(2).set_(t.arange(3))",
    "x = t.tensor(v)\nx[1].data_ptr() - x.data_ptr(), t.empty(0).data_ptr(), x.detach().data_ptr() == x.data_ptr()",
    "x = t.ones(2, requires_grad=True)\ny = x.as_subclass(t.nn.Parameter)\ntype(y).__name__, y.requires_grad",
    "t.ones(2).module_load(t.zeros(2)), t.ones(2).module_load(t.zeros(2), assign=True)",
    "t.from_dlpack(np.arange(6).reshape(2, 3))",
    "np.from_dlpack(t.arange(3))",
    "t.from_dlpack(t.utils.dlpack.to_dlpack(t.tensor(v)))",
    "np.from_dlpack(t.ones(2, requires_grad=True))",
    "t.ones(2).__dlpack_device__()[0].__int__()",
    "t.get_device_module('cpu').device_count(), t.cpu.is_available()",
    "t.vmap(lambda x: x * 2)(t.tensor(v))",
    "t.use_deterministic_algorithms(True, warn_only=True)\nw = t.is_deterministic_algorithms_warn_only_enabled()\n"
    "t.use_deterministic_algorithms(False)\nw, t.is_deterministic_algorithms_warn_only_enabled()",
]


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_do_what_they_do_in_pytorch(text: str, tg: Any) -> None:
    values = np.random.default_rng(20261124).standard_normal((5, 4)).astype(np.float32)
    assert_same(*evaluate(text, tg, v=values.tolist()))


def test_every_conversion_between_types_is_pytorchs(tg: Any) -> None:
    numbers = [[0, 1, 5, 100], [-3, 7, 127, 90]]
    warnings.simplefilter("ignore")
    for source, target in ((a, b) for a in OURS for b in OURS):
        theirs = torch.tensor(numbers).to(source)
        if source in (torch.bfloat16, torch.complex32, torch.uint16, torch.uint32, torch.uint64):
            theirs = theirs.abs() if source in (torch.bfloat16,) else torch.tensor(numbers).abs().to(source)
        wide = theirs.to(torch.complex128 if theirs.is_complex() else torch.float64)
        ours = tg.from_numpy(wide.numpy()).to(OURS[source])
        expected = theirs.to(target).to(torch.complex128 if target.is_complex else torch.float64)
        if (wide.real < 0).any() and not target.is_signed:
            continue  # undefined for floating-point sources
        result = ours.to(OURS[target])
        assert result.dtype is OURS[target]
        np.testing.assert_array_equal(result.to(tg.complex128 if target.is_complex else tg.float64), expected)


def test_files_of_the_wide_types_are_read_back(tg: Any, tmp_path: Any) -> None:
    kept = {name: tg.tensor([1, 2, 3], dtype=getattr(tg, name)) for name in ("uint16", "uint32", "uint64")}
    tg.save(kept, str(tmp_path / "kept.safetensors"))
    for name, tensor in tg.load(str(tmp_path / "kept.safetensors")).items():
        assert tensor.dtype is getattr(dtypes, name) and tensor.tolist() == [1, 2, 3]


def test_what_cannot_be_exchanged_is_refused_in_words(tg: Any) -> None:
    class OnGPU:
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("nothing is asked for")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(DeviceError, match="bring it to the CPU first"):
        tg.from_dlpack(OnGPU())
    with pytest.raises(ArgumentTypeError, match="expected a producer of DLPack, not list"):
        tg.from_dlpack([1, 2])
    with pytest.raises(BufferError, match="has no bfloat16"):
        np.from_dlpack(tg.ones(2).bfloat16())
    with pytest.raises(ArgumentTypeError, match="NumPy has no complex32"):
        tg.ones(2).chalf().numpy()
    with pytest.raises(DTypeError, match="promotion of uint16"):
        tg.ones(2, dtype=tg.uint16) + tg.ones(2, dtype=tg.int32)
    x = tg.arange(6.0)
    with pytest.raises(InplaceError, match=r"share memory.*clone"):
        tg.take(x, tg.tensor([0, 1]), out=x[:2])


def test_poisson_numbers_have_the_moments_of_the_distribution(tg: Any) -> None:
    for dtype in (tg.float32, tg.float64, tg.float16):
        rates = tg.tensor([0.0, 0.5, 3.0, 9.9, 10.0, 30.0, 900.0], dtype=dtype)
        drawn = tg.poisson(rates.expand(20_000, 7), generator=tg.Generator().manual_seed(5)).double().numpy()
        expected = rates.double().numpy()
        deviation = np.sqrt(expected / 20_000)
        assert (abs(drawn.mean(0) - expected) <= 5 * deviation + 0.02 * (dtype is tg.float16)).all()
        assert (abs(drawn.var(0) - expected) <= 0.06 * expected).all()
    with pytest.raises(ValueError, match="rates must not be negative"):
        tg.poisson(tg.tensor([-1.0])).tolist()
