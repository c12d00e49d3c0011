"""What files of ``torch.save`` may have, and how what is read of them is compared."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from telegrad._tensor.torch_files.objects import Objects
from telegrad._tensor.torch_files.reading import TorchNames

from .twins import OURS


def same(ours: Any, theirs: Any, tg: Any) -> None:
    """Compare structures by type, and tensors by all that files keep of them."""
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, tuple(ours.shape), ours.requires_grad) == (
            OURS[theirs.dtype], tuple(theirs.shape), theirs.requires_grad
        )  # fmt: skip
        assert isinstance(ours, tg.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        wide = theirs.detach().resolve_conj().resolve_neg()
        wide = wide.float() if wide.dtype is torch.bfloat16 else wide
        np.testing.assert_array_equal(ours.detach().numpy(force=True), wide.numpy())
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        assert getattr(ours, "_metadata", None) == getattr(theirs, "_metadata", None)
        for key, value in theirs.items():
            same(ours[key], value, tg)
    elif isinstance(theirs, torch.Size):
        assert isinstance(ours, tg.Size) and tuple(ours) == tuple(theirs)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b, tg)
    elif isinstance(theirs, (torch.dtype, torch.device)):
        assert str(ours).removeprefix("telegrad.") == str(theirs).removeprefix("torch.")
    else:
        assert type(ours) is type(theirs) and ours == theirs


DTYPES = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool".split()  # noqa: SIM905


def everything(t: Any, rng: np.random.Generator) -> dict[Any, Any]:
    """A structure with all that a file may have, of either library."""
    tensors = {name: t.tensor(rng.integers(0, 2, (2, 3))).to(getattr(t, name)) for name in DTYPES}
    tied = t.tensor(rng.standard_normal(3))
    return {
        "tensors": tensors, "parameter": t.nn.Parameter(t.ones(2)), "frozen": t.nn.Parameter(t.ones(2), False),
        "leaf": t.ones(2, requires_grad=True), "scalar": t.tensor(1.5), "empty": t.ones(0, 3), "tied": [tied, tied],
        "view": t.arange(12).reshape(3, 4)[1:, ::2].t(), "size": t.Size([1, 2]), "dtype": t.bfloat16,
        "devices": [t.device("cpu"), t.device("cuda:1"), t.device("cuda")], "ordered": OrderedDict(b=1, a=[2]),
        "numbers": [0, -1, 255, 256, 70000, 2**31, -(2**31), 2**63, -(2**80), 0.1, float("inf"), 1 - 2j, True, None],
        1: {"a", "b"}, (1, "k"): 2, "bytes": [b"\x00\xff", bytearray(b"abc")], "text": "é\n" * 200,
        "nested": ((), (1,), (1, (2, [3, {}]))),
    }  # fmt: skip


def names_for(objects: Objects) -> TorchNames:
    """Return what stands for the names of a pickle, which makes tuples instead of tensors."""
    return TorchNames(
        "the file", lambda layout, grad: layout, lambda data, grad: data, lambda *parts: parts, tuple, objects
    )


def older(obj: Any, path: Path) -> bytes:
    """Write a file in the form before PyTorch 1.6, and return its bytes."""
    torch.save(obj, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()
