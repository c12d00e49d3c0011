"""Traced models with normalizations folded into the layers before them, and without dropout, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.fx.experimental.optimization as theirs

import telegrad.fx.experimental.optimization as ours


def _model(t: Any) -> Any:
    nn = t.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
            self.shared, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
            self.head = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))

        def forward(self, x: Any) -> Any:
            shared = self.shared(x)
            return self.head(self.body(x).mean((2, 3))) + (self.norm(shared) + shared).mean()

    return Model()


def _filled(t: Any, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    model = _model(t)
    state = {k: draw.uniform(0.5, 1.5, tuple(v.shape)) for k, v in model.state_dict().items()}
    model.load_state_dict({k: t.tensor(v).to(model.state_dict()[k].dtype) for k, v in state.items()})
    return model


def test_fused_models_compute_the_same_with_the_modules_of_pytorch(tg: Any, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, 3, 6, 6)).astype(np.float32)
    expected, mine = theirs.fuse(_filled(torch, seed).eval()), ours.fuse(_filled(tg, seed).eval())
    assert [node.name for node in mine.graph.nodes] == [node.name for node in expected.graph.nodes]
    assert {node.target for node in mine.graph.nodes} >= {"shared", "norm", "body.0"}  # the shared result stays
    plain = _filled(tg, seed).eval()(tg.tensor(x)).detach().numpy()
    np.testing.assert_allclose(mine(tg.tensor(x)).detach().numpy(), plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(expected(torch.tensor(x)).detach().numpy(), plain, rtol=1e-4, atol=1e-5)


def test_a_model_without_dropout_has_no_such_nodes(tg: Any, seed: int) -> None:
    nodes = torch.fx.symbolic_trace(_filled(torch, seed)).graph.nodes
    mine = ours.remove_dropout(_filled(tg, seed))
    assert [node.name for node in mine.graph.nodes] == [node.name for node in nodes if node.target != "body.3"]
    assert "body.3" in {node.target for node in nodes}
