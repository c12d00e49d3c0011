"""A graph convolutional network on a real graph, neighbours among handwritten digits, learns as under PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

pytestmark = pytest.mark.filterwarnings("ignore:.*[Ss]parse")
_NODES = 600


def graph() -> tuple[sparse.coo_array, Any, Any]:
    """Return the normalized adjacency of each digit and its nearest ones, their features and classes."""
    features, classes = load_digits(return_X_y=True)
    features, classes = features[:_NODES] / 16, classes[:_NODES]
    near = kneighbors_graph(features, 8, include_self=True)
    symmetric = sparse.coo_array(((near + near.T) > 0).astype(np.float32))
    scale = 1 / np.sqrt(symmetric.sum(1))
    normalized = sparse.coo_array(sparse.diags_array(scale) @ symmetric @ sparse.diags_array(scale))
    return normalized, features.astype(np.float32), classes


def learned(t: Any, layout: str) -> tuple[list[float], float]:
    """Return the losses of training on a fifth of the nodes, and how many of all nodes are classified right."""
    matrix, features, classes = graph()
    adjacency = t.sparse_coo_tensor(
        t.tensor(np.stack([matrix.row, matrix.col]).astype(np.int64)), t.tensor(matrix.data.astype(np.float32)),
        matrix.shape,
    ).coalesce()  # fmt: skip
    adjacency = adjacency if layout == "sparse_coo" else adjacency.to_sparse_csr()
    x, y, known = t.tensor(features), t.tensor(classes), t.arange(0, _NODES, 5)
    generator = np.random.default_rng(0)
    first, second = (
        t.tensor((generator.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), requires_grad=True)
        for shape in ((features.shape[1], 32), (32, 10))
    )
    optimizer = t.optim.Adam([first, second], lr=0.02)
    losses = []
    for _ in range(20):
        scores = t.sparse.mm(adjacency, t.relu(t.sparse.mm(adjacency, x @ first)) @ second)
        loss = t.nn.functional.cross_entropy(scores[known], y[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], (scores.argmax(1) == y).to(t.float32).mean().item()


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_graph_is_learned_as_by_pytorch(tg: Any, layout: str) -> None:
    (ours, right), (theirs, expected) = learned(tg, layout), learned(torch, layout)
    np.testing.assert_allclose(ours, theirs, 1e-4)
    assert right == pytest.approx(expected, abs=0.01) and right > 0.85
