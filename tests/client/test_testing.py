"""``telegrad.testing`` beside ``torch.testing``: what is close, what is not and what is said of it, random tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

NAN = float("nan")
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("x, x + lib.tensor([0, 0, 1.0])", {}),
    ("x, x + 1e-6", {}),
    ("lib.tensor(1.0), lib.tensor(2.0)", {}),
    ("1.0, 2.0", {}),
    ("1, 1.0", {}),
    ("1, 1.0", {"check_dtype": False}),
    ("1j, 2", {"check_dtype": False}),
    ("True, False", {}),
    ("float('inf'), float('inf')", {}),
    ("float('nan'), float('nan')", {}),
    ("float('nan'), float('nan')", {"equal_nan": True}),
    ("lib.tensor([float('nan'), 1]), lib.tensor([float('nan'), 1])", {}),
    ("lib.tensor([float('nan'), 1]), lib.tensor([float('nan'), 1])", {"equal_nan": True}),
    ("x, x.double()", {}),
    ("x, x.double()", {"check_dtype": False}),
    ("x.bfloat16() * 1.25, x.half()", {"check_dtype": False}),
    ("x.int(), x.int() + 1", {}),
    ("x.bool(), ~x.bool()", {}),
    ("x.bool(), x.bool()", {"rtol": 0.5, "atol": 0.5}),
    ("lib.tensor([1, 2 + 1j]), lib.tensor([1, 2 + 2j])", {}),
    ("x, x[0]", {}),
    ("x, x.T.contiguous().T", {"check_stride": True}),
    ("x[:0], x[:0]", {}),
    ("[x, (x,)], [x, (x + 1,)]", {}),
    ("[x], [x, x]", {}),
    ("{'a': x}, {'b': x}", {}),
    ("{'a': x}, {'a': x + 2}", {"msg": "{'a'} differs"}),
    ("x, x + 2", {"msg": lambda message: f"before: {message}"}),
    ("x, x + 2", {"rtol": 0.0, "atol": 3.0}),
    ("x, x + 2", {"rtol": 0.0, "atol": 1.0}),
    ("None, None", {}),
    ("np.ones(3), np.zeros(3)", {}),
    ("lib.nn.Parameter(x), x", {}),
]


def _said(lib: Any, arguments: str, options: dict[str, Any]) -> str:
    x = lib.arange(6.0).view(2, 3)
    try:
        lib.testing.assert_close(*eval(arguments, {"lib": lib, "x": x, "np": np}), **options)  # noqa: S307
    except AssertionError as error:
        return str(error).replace("telegrad.", "torch.")
    return "close"


def test_what_is_close_and_what_is_said_of_what_is_not(tg: Any) -> None:
    said = [(arguments, options, _said(tg, arguments, options)) for arguments, options in MESSAGES]
    assert said == [(arguments, options, _said(torch, arguments, options)) for arguments, options in MESSAGES]


def test_what_cannot_be_compared_is_refused(tg: Any) -> None:
    x = tg.ones(2)
    with pytest.raises(ValueError, match="rtol is given and atol is not"):
        tg.testing.assert_close(x, x, rtol=1)
    for other in (np.ones(2, np.float32), "text"):
        with pytest.raises(TypeError, match=r"cannot compare Tensor with \w+\['a'\]"):
            tg.testing.assert_close({"a": x}, {"a": other})
    with pytest.raises(TypeError, match="cannot compare Parameter with Tensor"):
        tg.testing.assert_close(tg.nn.Parameter(x), x, allow_subclasses=False)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64", "int64", "uint8", "bool"])
def test_random_tensors_have_pytorchs_range_layout_and_refusals(tg: Any, name: str) -> None:
    ranges = []
    for lib in (tg, torch):
        dtype = getattr(lib, name)
        x = lib.testing.make_tensor(200, 100, dtype=dtype, device="cpu", noncontiguous=True)
        real = lib.view_as_real(x) if dtype.is_complex else x
        ranges.append([x.shape, x.stride(), x.dtype.itemsize, round(real.min().item()), round(real.max().item())])
        high = lib.testing.make_tensor((3,), dtype=dtype, device="cpu", low=0, high=2, exclude_zero=True)
        assert (high != 0).all()
        for wrong in ({"low": 3, "high": 1}, {"low": NAN}, {"noncontiguous": True, "memory_format": lib.channels_last}):
            with pytest.raises(ValueError, match=r"low|memory_format"):
                lib.testing.make_tensor((2,), dtype=dtype, device="cpu", **wrong)
    assert ranges[0] == ranges[1]
