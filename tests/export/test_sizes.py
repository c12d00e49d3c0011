"""For which sizes an exported program holds: none and one among them, and what becomes of hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch


def _module(lib: Any, forward: Callable[..., Any]) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return forward(x)

    return Net()


def _program(tg: Any, forward: Callable[..., Any], rows: int, dim: Any) -> Any:
    """Return the program of a function of a tensor with four columns, with the rows as ``dim``."""
    return tg.export.export(_module(tg, forward), (tg.ones(rows, 4),), dynamic_shapes={"x": {0: dim}}).module()


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.relu().sum(0),
        lambda x: x @ x.t(),
        lambda x: x.reshape(-1).cos(),
        lambda x: x.t().contiguous() * 2,
        lambda x: x.unsqueeze(1).expand(-1, 3, 4).mean(1),
        lambda x: (x.softmax(-1) * x.shape[0]).chunk(2, 1)[1],
    ],
)
def test_a_dimension_may_be_empty(tg: Any, rng: np.random.Generator, forward: Callable[..., Any]) -> None:
    program = _program(tg, forward, 3, tg.export.Dim("rows"))
    for rows in (0, 1, 2, 7):
        given = rng.standard_normal((rows, 4)).astype(np.float32)
        wanted = forward(torch.from_numpy(given).double()).numpy()
        made = program(tg.tensor(given)).numpy()
        assert made.shape == wanted.shape
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def test_two_dimensions_may_be_empty(tg: Any) -> None:
    Dim = tg.export.Dim
    shapes = {"x": {0: Dim("rows"), 1: Dim("columns")}}
    program = tg.export.export(_module(tg, lambda x: x.flatten() + 1), (tg.ones(3, 4),), dynamic_shapes=shapes).module()
    for shape in ((0, 4), (3, 0), (0, 0), (5, 1)):
        assert program(tg.ones(*shape)).shape == (shape[0] * shape[1],)


def test_sizes_at_which_the_module_does_something_else_are_refused(tg: Any) -> None:
    for forward, least in ((lambda x: x[:-1], 1), (lambda x: x.squeeze(), 2)):
        program = _program(tg, forward, 3, tg.export.Dim("rows"))
        assert program(tg.ones(least, 4)).shape == forward(tg.ones(least, 4)).shape
        with pytest.raises(RuntimeError, match=f"the size rows is {least - 1}; the program takes sizes from {least}"):
            program(tg.ones(least - 1, 4))
    limited = _program(tg, lambda x: x + 1, 3, tg.export.Dim("rows", min=1))
    with pytest.raises(RuntimeError, match="takes sizes from 1"):
        limited(tg.ones(0, 4))


def test_hints_have_the_range_of_the_path_that_the_example_takes(tg: Any) -> None:
    def branches(x: Any) -> Any:
        return x.relu() if 3 < x.shape[0] <= 7 else x.sigmoid()

    for hint in (tg.export.Dim.AUTO, tg.export.Dim.DYNAMIC):
        program = _program(tg, branches, 4, hint)
        for rows in (4, 5, 7):
            assert program(tg.full((rows, 4), 3.0)).sum().item() == 12 * rows
        for rows in (3, 8):
            with pytest.raises(RuntimeError, match=f"is {rows}; the program takes sizes from 4 to 7"):
                program(tg.ones(rows, 4))


@pytest.mark.parametrize(
    ("forward", "rows", "within", "beyond"),
    [
        (lambda x: x * 2 if x.shape[0] > 2 else x * 3, 5, (3, 4, 70_000), (2,)),
        (lambda x: x * 2 if x.shape[0] < 7 else x * 3, 5, (0, 1, 6), (7,)),
        (lambda x: x[: max(x.shape[0] - 2, 1)], 6, (3, 9), (2,)),
        (lambda x: x[: min(x.shape[0], 7)], 5, (1, 7), (8,)),
        (lambda x: x[: min(x.shape[0], 7)], 9, (7, 300), (6,)),
    ],
)
def test_hints_have_the_range_in_which_integers_have_one_formula(
    tg: Any, forward: Callable[..., Any], rows: int, within: tuple[int, ...], beyond: tuple[int, ...]
) -> None:  # fmt: skip
    program = _program(tg, forward, rows, tg.export.Dim.AUTO)
    for size in (rows, *within):
        x = tg.arange(4.0 * size).view(size, 4)
        assert tg.equal(program(x), forward(x))
    for size in beyond:
        with pytest.raises(RuntimeError, match="the program takes sizes from"):
            program(tg.ones(size, 4))


def test_a_step_between_the_sizes_that_were_tried_is_found(tg: Any) -> None:
    for step in (6, 7, 8, 10, 12):
        program = _program(tg, lambda x, step=step: x * (2 + x.shape[0] // step), 5, tg.export.Dim.AUTO)
        for size in (5, step - 1, step, step + 1, 2 * step):
            assert program(tg.ones(size, 4)).unique().tolist() == [2 + size // step]


def test_hints_may_be_multiples(tg: Any) -> None:
    program = _program(tg, lambda x: x.view(3, -1, 2, 4), 12, tg.export.Dim.AUTO(max=40))
    for rows in (6, 12, 36):
        assert program(tg.ones(rows, 4)).shape == (3, rows // 6, 2, 4)
    for rows, said in ((9, r"dimension 0 must be 6\*s0"), (42, "the size s0 is 7; .* from 0 to 6")):
        with pytest.raises(RuntimeError, match=said):
            program(tg.ones(rows, 4))


def test_a_dimension_that_cannot_vary_is_static_for_auto_alone(tg: Any) -> None:
    Dim = tg.export.Dim
    program = _program(tg, lambda x: x.view(4, 4) + 1, 4, Dim.AUTO)
    with pytest.raises(RuntimeError, match="dimension 0 must be 4, not 5"):
        program(tg.ones(5, 4))
    with pytest.raises(RuntimeError, match=r"view: shape \[4, 4\] does not hold"):
        _program(tg, lambda x: x.view(4, 4) + 1, 4, Dim.DYNAMIC)


def test_dimensions_tell_their_names_and_ranges(tg: Any) -> None:
    Dim = tg.export.Dim
    for ours, theirs in (
        (Dim("a"), torch.export.Dim("a")),
        (Dim("a", min=2, max=5), torch.export.Dim("a", min=2, max=5)),
        (2 * Dim("a", max=9) + 1, 2 * torch.export.Dim("a", max=9) + 1),
        (Dim("a") - 5, torch.export.Dim("a") - 5),
    ):
        assert (repr(ours), ours.__name__) == (repr(theirs), theirs.__name__)
    assert repr(Dim.DYNAMIC(min=2)) == repr(torch.export.Dim.DYNAMIC(min=2))
    for wrong in (lambda lib: -1 * lib.export.Dim("a"), lambda lib: lib.export.Dim("a") * 1.5):
        for lib in (tg, torch):
            with pytest.raises(NotImplementedError, match="nly increasing linear operations"):
                wrong(lib)
    with pytest.raises(ValueError, match="min must be <= max, got min=5, max=2"):
        Dim.AUTO(min=5, max=2)
