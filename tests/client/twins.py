"""The same program on telegrad and on PyTorch: evaluate an expression in both, compare all that can be seen of it."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from telegrad import TelegradError, Tensor
from telegrad_protocol import dtypes

_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
"""Types that NumPy lacks, with those that stand for them."""
OURS = {getattr(torch, d.name): d for d in dtypes.ALL}


def evaluate(text: str, tg: Any, **values: Any) -> tuple[Any, Any]:
    """What ``text`` is with ``t`` as telegrad and as torch; an exception counts as a value."""
    # PyTorch's compiler has distributions check nothing from its first use on, in whichever test that was.
    torch.distributions.Distribution.set_default_validate_args(True)
    return _evaluate(text, tg, values), _evaluate(text, torch, values)


def _evaluate(text: str, t: Any, values: Mapping[str, Any]) -> Any:
    names = {"t": t, "np": np, "math": math, **values}
    try:
        lines = textwrap.dedent(text).strip("\n").splitlines()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("\n".join(lines[:-1]), names)  # noqa: S102 - the tests' own programs
            return eval(lines[-1], names)  # noqa: S307
    except Exception as error:
        return error


def assert_same(ours: Any, theirs: Any, path: str = "result") -> None:
    """Compare values, types, layouts and flags, containers element by element."""
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"{path}: PyTorch raises {theirs!r}, and we give {ours!r}"
        assert isinstance(ours, (TelegradError, type(theirs))), f"{path}: we raise {ours!r}, which nobody foresaw"
        kinds = isinstance(ours, IndexError), isinstance(theirs, IndexError)
        assert kinds[0] == kinds[1], f"{path}: PyTorch raises {theirs!r}, and we {ours!r}"
    elif isinstance(ours, Exception):
        raise AssertionError(f"{path}: PyTorch gives {theirs!r}") from ours
    elif isinstance(theirs, torch.Tensor):
        assert isinstance(ours, Tensor), f"{path}: {ours!r} is no tensor"
        assert_same_tensor(ours, theirs, path)
    elif isinstance(theirs, torch.dtype):
        assert ours is OURS[theirs], f"{path}: {ours} is not {theirs}"
    elif isinstance(theirs, (tuple, list)):
        assert isinstance(ours, (tuple, list)) and len(ours) == len(theirs), f"{path}: {ours!r} is not {theirs!r}"
        for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{path}[{at}]")
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    elif isinstance(theirs, (str, torch.device)):
        assert str(ours).replace("telegrad.", "torch.") == str(theirs), f"{path}: {ours!r} is not {theirs!r}"
    else:
        assert type(ours) is type(theirs), f"{path}: {ours!r} is not a {type(theirs).__name__}"
        assert ours == theirs or (ours != ours and theirs != theirs), f"{path}: {ours!r} is not {theirs!r}"


def assert_same_tensor(ours: Tensor, theirs: torch.Tensor, path: str = "result") -> None:
    """Everything that the client knows of a tensor, and the elements."""
    seen = (
        ours.dtype, tuple(ours.shape), tuple(ours.stride()), ours.storage_offset(), ours.requires_grad, ours.is_leaf,
    )  # fmt: skip
    wanted = (
        OURS[theirs.dtype], tuple(theirs.shape), theirs.stride(), theirs.storage_offset(), theirs.requires_grad,
        theirs.is_leaf,
    )  # fmt: skip
    assert seen == wanted, f"{path}: (dtype, shape, strides, offset, requires_grad, is_leaf) is {seen}, not {wanted}"
    expected = theirs.detach().resolve_conj()
    wide = expected.to(_WIDER.get(expected.dtype, expected.dtype))
    finite = wide.abs()[wide.isfinite()] if wide.dtype.is_floating_point else wide.new_ones(0)
    atol = 1e-6 * max(1.0, finite.max().item() if finite.numel() else 0.0)  # sums of such terms may cancel each other
    np.testing.assert_allclose(
        ours.numpy(force=True), wide.numpy(), rtol=_tolerance(theirs.dtype), atol=atol, err_msg=path, strict=True
    )


def _tolerance(dtype: torch.dtype) -> float:
    return {
        torch.float64: 1e-12,
        torch.complex128: 1e-12,
        torch.float16: 2e-3,
        torch.bfloat16: 1e-2,
        torch.complex32: 2e-3,
    }.get(dtype, 2e-6)


def mlp(nn: Any) -> Any:
    """A small model of either library."""
    return nn.Sequential(
        nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Sequential(nn.Linear(5, 4, bias=False), nn.GELU())
    )
