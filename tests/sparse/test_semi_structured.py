"""Matrices with two of four neighbours in a row: what is refused as by PyTorch, what is kept, and products.

PyTorch takes such matrices on GPUs alone. The tests have the host taken for one, so that they need none.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad.sparse import semi_structured
from telegrad_protocol.errors import NotSupportedError


@pytest.fixture
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(semi_structured.SparseSemiStructuredTensor, "_DEVICES", ("cpu",))
    monkeypatch.setattr(semi_structured.SparseSemiStructuredTensor, "_PROTOTYPE_WARNING_SHOWN", True)
    yield


def _two_of_four(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Return a matrix with at most two of four neighbours, of which some are zero."""
    order = rng.random((rows, columns // 4, 4)).argsort(2)
    matrix = np.where(order < 2, rng.integers(-2, 3, (rows, columns // 4, 4)), 0)
    return matrix.reshape(rows, columns).astype(np.float32)


def test_what_pytorch_refuses_is_refused_in_its_words(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semi_structured.SparseSemiStructuredTensor, "_PROTOTYPE_WARNING_SHOWN", True)
    with warnings.catch_warnings(), pytest.raises(RuntimeError) as theirs:
        warnings.simplefilter("ignore")
        torch.sparse.to_sparse_semi_structured(torch.ones(64, 64))
    with pytest.raises(NotSupportedError, match=re.escape(str(theirs.value))):
        tg.sparse.to_sparse_semi_structured(tg.ones(64, 64))


@pytest.mark.parametrize("kind", ["SparseSemiStructuredTensorCUTLASS", "SparseSemiStructuredTensorCUSPARSELT"])
def test_types_and_sizes_are_pytorchs(tg: Any, _on_the_host: None, kind: str) -> None:
    ours, theirs = getattr(tg.sparse, kind), getattr(torch.sparse, kind)
    for dtype, least in ours._DTYPE_SHAPE_CONSTRAINTS.items():
        config = theirs._DTYPE_SHAPE_CONSTRAINTS[getattr(torch, dtype.name)]
        assert least == (config.sparse_min_rows, config.sparse_min_cols)
        made = ours.from_dense(tg.zeros(*least, dtype=dtype))
        assert made.shape == tuple(least) and made.dtype is dtype and type(made) is ours
        for shape in ((least.rows + 1, least.columns), (least.rows, least.columns // 2), (least.rows,)):
            with pytest.raises(RuntimeError, match="is not supported"):
                ours.from_dense(tg.zeros(*shape, dtype=dtype))
        with pytest.raises(RuntimeError, match="is not contiguous"):
            ours.from_dense(tg.zeros(least.columns, least.rows, dtype=dtype).t())
    with pytest.raises(RuntimeError, match="not a supported dtype"):
        ours.from_dense(tg.zeros(64, 64, dtype=tg.float64))


def test_products_are_those_of_the_dense_matrix(tg: Any, _on_the_host: None, rng: np.random.Generator) -> None:
    host = _two_of_four(rng, 64, 96)
    sparse = tg.sparse.to_sparse_semi_structured(tg.tensor(host))
    right, left = rng.integers(-3, 4, (96, 5)).astype(np.float32), rng.integers(-3, 4, (7, 96)).astype(np.float32)
    assert np.array_equal((sparse @ tg.tensor(right)).numpy(), host @ right)
    assert np.array_equal((tg.tensor(left) @ sparse.t()).numpy(), left @ host.T)
    assert np.array_equal(tg.addmm(tg.ones(64, 5), sparse, tg.tensor(right)).numpy(), host @ right + 1)
    assert np.array_equal(sparse.to_dense().numpy(), host)
    values, places = sparse.values().numpy(), sparse.indices().numpy()
    assert values.shape == places.shape == (64, 48)
    rebuilt = np.zeros((64, 24, 4), np.float32)
    np.put_along_axis(rebuilt, places.reshape(64, 24, 2), values.reshape(64, 24, 2), axis=2)
    assert np.array_equal(rebuilt.reshape(64, 96), host)
    with pytest.raises(NotSupportedError, match="can't perform requested op"):
        sparse + 1


def test_of_more_than_two_the_first_two_are_kept(tg: Any, _on_the_host: None) -> None:
    dense = tg.tensor([1.0, 2, 3, 4, 0, 5, 6, 7]).tile((32, 4))
    kept = tg.sparse.to_sparse_semi_structured(dense).to_dense()
    assert kept[0, :8].tolist() == [1, 2, 0, 0, 0, 5, 6, 0]


def test_a_layer_takes_such_a_weight(tg: Any, _on_the_host: None, rng: np.random.Generator) -> None:
    layer = tg.nn.Linear(96, 64)
    host = _two_of_four(rng, 64, 96)
    layer.weight = tg.nn.Parameter(tg.sparse.to_sparse_semi_structured(tg.tensor(host)))
    x = tg.tensor(rng.integers(-3, 4, (2, 3, 96)).astype(np.float32), requires_grad=True)
    out = layer(x)
    np.testing.assert_allclose(out.detach().numpy(), x.detach().numpy() @ host.T + layer.bias.detach().numpy(), 1e-5)
    out.sum().backward()
    assert np.array_equal(x.grad.numpy(), np.broadcast_to(host.sum(0), (2, 3, 96)))
    assert layer.bias.grad.tolist() == [6.0] * 64
