"""The package ``functorch``: modules apart from their state do what PyTorch's do with the same numbers."""

from __future__ import annotations

import random
import warnings
from typing import Any

import functorch as theirs
import pytest
import torch

from telegrad._programs.private import functorch_package as ours

pytestmark = pytest.mark.filterwarnings("ignore")


def _pair(tg: Any, layers: str, count: int = 1) -> list[tuple[Any, Any]]:
    """Return modules of both libraries with the same state; ``layers`` is made with each library as ``t``."""
    seed = random.randrange(1 << 30)
    print(f"seed = {seed}")
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        mine, other = (eval(layers, {"t": t}) for t in (tg, torch))  # noqa: S307 - the tests' own texts
        state = {name: torch.rand(x.shape, generator=generator).to(x.dtype) for name, x in other.state_dict().items()}
        other.load_state_dict(state)
        mine.load_state_dict(
            {name: tg.tensor(x.tolist(), dtype=mine.state_dict()[name].dtype) for name, x in state.items()}
        )
        pairs.append((mine.eval(), other.eval()))
    return pairs


def _assert_close(mine: Any, other: Any) -> None:
    torch.testing.assert_close(torch.from_numpy(mine.detach().cpu().numpy()), other.detach())


@pytest.mark.parametrize("tracks", [True, False])
def test_a_module_is_called_with_parameters(tracks: bool, tg: Any) -> None:
    [(mine, other)] = _pair(tg, "t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 2))")
    functions = ours.make_functional(mine, not tracks), theirs.make_functional(other, not tracks)
    (f, params), (g, expected) = functions
    assert len(params) == len(expected) and all(a.requires_grad is tracks for a in params)
    assert params[0] is not mine[0].weight and isinstance(f, ours.FunctionalModule)
    doubled = [p * 2 for p in params], [p * 2 for p in expected]
    _assert_close(f(doubled[0], tg.ones(5, 3)), g(doubled[1], torch.ones(5, 3)))
    with pytest.raises(RuntimeError, match="the module has 4"):
        f(params[:2], tg.ones(5, 3))


def test_a_module_is_called_with_buffers(tg: Any) -> None:
    [(mine, other)] = _pair(tg, "t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))")
    with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
        ours.make_functional(mine)
    (f, params, buffers), (g, expected, kept) = (
        ours.make_functional_with_buffers(mine), theirs.make_functional_with_buffers(other)
    )  # fmt: skip
    assert len(buffers) == len(kept)
    _assert_close(f(params, buffers, tg.ones(5, 3)), g(expected, kept, torch.ones(5, 3)))


def test_models_are_called_as_one(tg: Any) -> None:
    pairs = _pair(tg, "t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))", 3)
    f, params, buffers = ours.combine_state_for_ensemble([mine for mine, _ in pairs])
    g, expected, kept = theirs.combine_state_for_ensemble([other for _, other in pairs])
    for a, b in zip((*params, *buffers), (*expected, *kept), strict=True):
        _assert_close(a, b)
        assert a.requires_grad is b.requires_grad
    together = ours.vmap(f, (0, 0, None))(params, buffers, tg.ones(5, 3))
    _assert_close(together, torch.func.vmap(g, (0, 0, None))(expected, kept, torch.ones(5, 3)))
    for refused in ([], [pairs[0][0], tg.nn.Linear(3, 4).eval()], [pairs[0][0], tg.nn.Linear(3, 4).train()]):
        with pytest.raises(RuntimeError, match="Expected"):
            ours.combine_state_for_ensemble(refused)


def test_what_replaces_it_is_told(tg: Any) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ours.make_functional(tg.nn.Linear(1, 1))
    assert [(w.category, w.filename) for w in told] == [(FutureWarning, __file__)]
