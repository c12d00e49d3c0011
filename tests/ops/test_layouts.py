"""Composites return what their contracts promise: the client computes views from the layout that the contract tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import server.engine.ops  # noqa: F401  what is a composite is known once all are registered
from server.engine.dispatcher import is_value
from server.engine.operators import OPERATORS
from server.engine.signature import metas_of
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops.namespaces import NAMESPACES
from tests.support.draws import drawn

from .adapters import CLIENT_OPTIONS, EngineAdapter
from .database import op_db
from .harness import significant, tree_map
from .known import LAPACK, composed, is_out_of_scope
from .test_opinfo import ours_of

MAX_SAMPLES = 20
NAMES = (*LAPACK, "stft", "istft", "logdet", "mvlgamma")
ENTRIES = [
    pytest.param(info, id=f"{info.name}-{info.variant_test_name or 'plain'}")
    for info in op_db
    if ours_of(info.name)
    and (info.name.rpartition(".")[0] in NAMESPACES or info.name in NAMES)
    and composed(info, len) is len  # the database composes the others of several operations
]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _promised(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The metas of the results as the contract tells them; none where only data can."""
    for op in PUBLIC[name]:
        if op.form != "functional":
            continue
        try:
            bound = op.normalize(op.bind(tuple(args), kwargs), is_value)
        except ArgumentTypeError:
            continue
        metas = op.infer(metas_of(bound))
        return metas if isinstance(metas, tuple) else (metas,)
    raise AssertionError(f"no form of {name} takes {args} and {kwargs}")


@pytest.mark.parametrize("info", ENTRIES)
def test_results_lie_in_memory_as_the_contract_says(info: Any) -> None:
    _require_promised(info, (torch.float32, torch.complex64), MAX_SAMPLES, [lambda tensor: tensor])


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with the first dimension innermost."""
    order = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def _channels_innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with the first dimension innermost, and the others in their order."""
    order = (*range(1, tensor.ndim), *range(min(tensor.ndim, 1)))
    back = (tensor.ndim - 1, *range(tensor.ndim - 1)) if tensor.ndim else ()
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _spaced(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with one between each and the next."""
    return tensor.repeat_interleave(2, -1)[..., ::2] if tensor.ndim and tensor.numel() else tensor


COMPOSITES = [
    pytest.param(info, id=f"{info.name}-{info.variant_test_name or 'plain'}")
    for info in op_db
    if ours_of(info.name) not in (None, "view_as")  # which views what lies so that it can be viewed
    and any(OPERATORS[op.name].composite is not None for op in PUBLIC.get(ours_of(info.name), ()))
    and composed(info, len) is len
]


@pytest.mark.parametrize("info", drawn(COMPOSITES, 60))
def test_results_of_composites_lie_as_their_contract_says_wherever_operands_lie(info: Any) -> None:
    """The client takes what its contract calls contiguous for a copy, so that a wrong promise shares memory."""
    _require_promised(info, (torch.float32,), 3, [_reversed, _channels_innermost, _spaced])


def _require_promised(info: Any, dtypes: Sequence[torch.dtype], most: int, layouts: Sequence[Any]) -> None:
    adapter = EngineAdapter()
    torch.manual_seed(0)
    wrong = []
    for dtype in dtypes:
        samples = info.sample_inputs("cpu", dtype) if info.supports_dtype(dtype, "cpu") else ()
        for _, sample in zip(range(most), samples, strict=False):
            given = [sample.input, *sample.args]
            if is_out_of_scope(info.name, given, sample.kwargs):
                continue
            options = {name: value for name, value in sample.kwargs.items() if name not in CLIENT_OPTIONS}
            for laid_out in layouts:
                args, kwargs = (
                    tree_map(lambda t, f=laid_out: adapter.tensor(f(t)), adapter.convert, part)
                    for part in (given, options)
                )
                wrong += _broken_promises(adapter, ours_of(info.name), args, kwargs)
    assert not wrong, "\n".join(wrong[:4])


def _broken_promises(adapter: EngineAdapter, name: str, args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    result = adapter.function(name)(*args, **kwargs)
    pairs = zip(_promised(name, args, kwargs), result if isinstance(result, tuple) else (result,), strict=True)
    return [
        f"{args} {kwargs}: {value.meta} {value.meta.strides}, not {promised.strides}"
        for promised, value in pairs
        if promised is not None and not _agree(promised, value.meta)
    ]


def _agree(promised: Any, meta: Any) -> bool:
    if (promised.shape, promised.dtype) != (meta.shape, meta.dtype):
        return False
    return not meta.numel or significant(meta.shape, promised.strides) == significant(meta.shape, meta.strides)
