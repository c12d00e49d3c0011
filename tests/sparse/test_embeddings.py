"""Sparse gradients of embedding tables, and the optimizers that take them, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:.*[Ss]parse")
VARIANTS: dict[str, dict[str, Any]] = {
    "Embedding": {"padding_idx": 2}, "EmbeddingBag": {"mode": "sum"}, "EmbeddingBag of means": {"mode": "mean"},
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {}, "SGD with momentum": {"momentum": 0.9, "nesterov": True, "maximize": True}, "Adagrad": {"lr_decay": 0.1},
    "SparseAdam": {"betas": (0.8, 0.99)},
}  # fmt: skip


def trained(t: Any, start: Any, variant: str, optimizer: str) -> list[Any]:
    """Return the gradients and the table of a few steps: passes that add up, and tables that are used densely too."""
    kind = getattr(t.nn, variant.split()[0])
    layer = kind(7, 3, sparse=True, **VARIANTS[variant])
    with t.no_grad():
        layer.weight.copy_(t.tensor(start))
    steps = getattr(t.optim, optimizer.split()[0])(layer.parameters(), lr=0.1, **SETTINGS[optimizer])
    kept = []
    for step in range(4):
        steps.zero_grad()
        rows = layer(t.tensor([[1, 2, 2], [0, 5, 1 + step % 3]]))
        loss = (rows.tanh() * t.arange(float(rows.numel())).reshape(rows.shape)).sum() + (rows**2).sum()
        loss.backward(retain_graph=True)
        if step == 1:
            loss.backward()
        assert layer.weight.grad.is_sparse
        kept.append(layer.weight.grad.to_dense())
        steps.step()
    (layer.weight**2).sum().backward()
    return [*kept, layer.weight.grad, layer.weight]


@pytest.mark.parametrize("optimizer", SETTINGS)
def test_tables_are_trained_as_by_pytorch(tg: Any, rng: np.random.Generator, optimizer: str) -> None:
    start = rng.standard_normal((7, 3)).astype(np.float32)
    for variant in VARIANTS:
        for ours, theirs in zip(trained(tg, start, variant, optimizer), trained(torch, start, variant, optimizer)):
            expected = theirs.detach().numpy()
            np.testing.assert_allclose(ours.detach().numpy(), expected, 1e-4, 1e-4, err_msg=variant)


def test_a_sparse_gradient_is_that_of_the_rows_alone(tg: Any) -> None:
    embed, index = tg.nn.functional.embedding, tg.tensor([1, 1, 4])
    weight = tg.ones(5, 2, requires_grad=True)
    rows = embed(index, weight, sparse=True)
    (gradient,) = tg.autograd.grad(rows.sum(), weight, retain_graph=True)
    assert gradient._indices().tolist() == [[1, 1, 4]] and gradient._values().tolist() == [[1, 1]] * 3
    assert weight.grad is None and not rows.is_leaf and rows.grad_fn.name() == "EmbeddingBackward0"
    rows.mul_(3).sum().backward()
    assert weight.grad.coalesce().values().tolist() == [[6, 6], [3, 3]]
    before = tg.wire_stats().round_trips
    for _ in range(3):
        weight.grad = None
        embed(index, weight, sparse=True).sum().backward()
    assert tg.wire_stats().round_trips == before
    other = weight * 2
    (dense,) = tg.autograd.grad(embed(index, other, sparse=True).sum(), weight)
    assert dense.layout is tg.strided and dense[:, 0].tolist() == [0, 4, 0, 0, 2]
    weight.grad = None
    tied = embed(index, weight, sparse=True).sum() + (weight * 5).sum()
    (both,) = tg.autograd.grad(tied, weight, retain_graph=True)
    tied.backward(inputs=[weight])
    assert both.tolist() == weight.grad.tolist() == [[5, 5], [7, 7], [5, 5], [5, 5], [6, 6]]


def test_hooks_of_a_table_see_its_sparse_gradient(tg: Any) -> None:
    weight, seen = tg.ones(4, 2, requires_grad=True), []
    weight.register_hook(lambda gradient: gradient * 2)
    weight.register_post_accumulate_grad_hook(lambda table: seen.append(table.grad.is_sparse))
    tg.nn.functional.embedding(tg.tensor([3]), weight, sparse=True).sum().backward()
    assert weight.grad.to_dense().tolist() == [[0, 0]] * 3 + [[2, 2]] and seen == [True]
    (weight * tg.nn.functional.embedding(tg.tensor([3]), weight, sparse=True)).sum().backward()
    assert weight.grad.tolist() == [[2, 2]] * 3 + [[2 + 2 + 8, 2 + 2 + 8]] and seen == [True, False, False]


def test_what_sparse_gradients_cannot_do_is_said(tg: Any) -> None:
    weight = tg.ones(4, 2, requires_grad=True)
    embed = tg.nn.functional.embedding
    embed(tg.tensor([3]), weight, sparse=True).sum().backward()
    for name in ("Adam", "AdamW", "RMSprop", "Adamax"):
        with pytest.raises(tg.TelegradError, match=f"{name} does not support sparse gradients"):
            getattr(tg.optim, name)([weight]).step()
    for name in ("SGD", "Adagrad"):
        with pytest.raises(tg.TelegradError, match="weight_decay"):
            getattr(tg.optim, name)([weight], weight_decay=0.1).step()
    with pytest.raises(tg.TelegradError, match="scale_grad_by_freq"):
        embed(tg.tensor([3]), weight, sparse=True, scale_grad_by_freq=True)
    with pytest.raises(tg.TelegradError, match="max"):
        tg.nn.functional.embedding_bag(tg.tensor([[3]]), weight, sparse=True, mode="max")


def test_the_gradient_of_a_table_is_without_its_padding_row(tg: Any) -> None:
    found = []
    for t in (tg, torch):
        table = t.nn.Embedding(4, 2, padding_idx=0, sparse=True)
        t.nn.init.ones_(table.weight)
        for places in ([0, 1, 1], [0, 0]):
            table.zero_grad()
            table(t.tensor(places)).sum().backward()
            gradient = table.weight.grad
            found.append((gradient._nnz(), gradient._indices().tolist(), gradient.to_dense().tolist()))
    assert found[:2] == found[2:]


def test_a_sparse_parameter_is_trained(tg: Any) -> None:
    found = []
    for t in (tg, torch):
        weight = t.nn.Parameter(t.eye(3).to_sparse())
        assert isinstance(weight, t.nn.Parameter) and weight.is_sparse and weight.requires_grad and weight.is_leaf
        optimizer = t.optim.SGD([weight], lr=0.1)
        gradients = []
        for _ in range(2):
            optimizer.zero_grad()
            t.sparse.mm(weight, t.arange(6.0).reshape(3, 2)).sum().backward()
            assert weight.grad.layout is t.sparse_coo
            gradients.append(weight.grad.to_dense().tolist())
            optimizer.step()
        found.append([*gradients, weight.detach().to_dense().tolist()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-6)
