"""Sparse tensors in files, copies, modules and passes."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:.*[Ss]parse")


def tensors(t: Any) -> dict[str, Any]:
    """Return a tensor in each layout, one of them twice."""
    dense = t.eye(4)
    dense[0, 2] = 5.0
    uncoalesced = t.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2))
    return {
        "coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 1)), "bsc": dense.to_sparse_bsc((1, 2)), "uncoalesced": uncoalesced,
        "hybrid": t.ones(2, 3).to_sparse(1), "twice": [uncoalesced, uncoalesced],
    }  # fmt: skip


def described(name: str, tensor: Any) -> Any:
    """Return what can be seen of a tensor."""
    coalesced = tensor.is_coalesced() if name in ("coo", "uncoalesced", "hybrid") else None
    facts = str(tensor.layout).rpartition(".")[2], tuple(tensor.shape), tensor._nnz(), coalesced, tensor.dense_dim()
    return (*facts, tensor.to_dense().tolist())


def test_files_go_from_each_library_to_the_other(tg: Any) -> None:
    for writer, reader in ((tg, torch), (torch, tg), (tg, tg)):
        file = io.BytesIO()
        writer.save(tensors(writer), file)
        file.seek(0)
        loaded = reader.load(file)
        first, second = loaded.pop("twice")
        assert first is second
        expected = {name: described(name, x) for name, x in tensors(torch).items() if name != "twice"}
        assert {name: described(name, x) for name, x in loaded.items()} == expected


def test_copies_and_pickles_are_equal(tg: Any) -> None:
    for name, tensor in tensors(tg).items():
        if name != "twice":
            for made in (copy.copy(tensor), copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor)), tensor.clone()):
                assert described(name, made) == described(name, tensor)


def test_a_module_moves_its_sparse_buffer(tg: Any) -> None:
    class Convolution(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", tg.eye(3).to_sparse())
            self.linear = tg.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.adjacency @ self.linear(x)

    module = Convolution().double().to("cpu")
    assert module(tg.ones(3, 3).double()).dtype is tg.float64
    other = copy.deepcopy(module)
    other.load_state_dict(module.state_dict())
    assert other.adjacency.dtype is tg.float64 and other.state_dict()["adjacency"].layout is tg.sparse_coo


def test_passes_begin_and_end_at_sparse_tensors(tg: Any) -> None:
    seen = []
    for t in (tg, torch):
        leaf = t.tensor([1.0, 0, 2]).to_sparse().requires_grad_()
        (gradient,) = t.autograd.grad((leaf * 3).to_dense().sum(), leaf)
        weights = t.tensor([1.0, 0, 4]).to_sparse()
        (leaf * 2).backward(weights)
        t.autograd.backward([leaf * 2], [weights])
        seen.append((gradient.to_dense().tolist(), leaf.grad.to_dense().tolist(), leaf.is_leaf, (leaf * 2).is_leaf))
    assert seen[0] == seen[1]
