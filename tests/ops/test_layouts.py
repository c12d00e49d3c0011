"""Composites return what their contracts promise: the client computes views from the layout that the contract tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine.dispatcher import is_value
from server.engine.signature import metas_of
from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops.namespaces import NAMESPACES

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
    if ours_of(info.name) and (info.name.rpartition(".")[0] in NAMESPACES or info.name in NAMES)
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
    adapter = EngineAdapter()
    torch.manual_seed(0)
    wrong = []
    if composed(info, len) is not len:
        pytest.skip("the database composes it of several operations")
    for dtype in (torch.float32, torch.complex64):
        samples = info.sample_inputs("cpu", dtype) if info.supports_dtype(dtype, "cpu") else ()
        for _, sample in zip(range(MAX_SAMPLES), samples, strict=False):
            given = [sample.input, *sample.args]
            if is_out_of_scope(info.name, given, sample.kwargs):
                continue
            args = tree_map(adapter.tensor, adapter.convert, given)
            options = {name: value for name, value in sample.kwargs.items() if name not in CLIENT_OPTIONS}
            kwargs = tree_map(adapter.tensor, adapter.convert, options)
            result = adapter.function(ours_of(info.name))(*args, **kwargs)
            results = result if isinstance(result, tuple) else (result,)
            for promised, value in zip(_promised(ours_of(info.name), args, kwargs), results, strict=True):
                if not _agree(promised, value.meta):
                    wrong.append(f"{args} {kwargs}: {value.meta} {value.meta.strides}, not {promised.strides}")
    assert not wrong, "\n".join(wrong[:4])


def _agree(promised: Any, meta: Any) -> bool:
    if (promised.shape, promised.dtype) != (meta.shape, meta.dtype):
        return False
    return not meta.numel or significant(meta.shape, promised.strides) == significant(meta.shape, meta.strides)
