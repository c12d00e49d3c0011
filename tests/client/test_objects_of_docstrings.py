"""What objects of the examples in PyTorch's docstrings have beside what the examples show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

TRANSFORMED = {"Gumbel": "rate - 1, rate", "Kumaraswamy": "rate, rate"}


@pytest.mark.parametrize("kind", TRANSFORMED)
def test_gumbel_and_kumaraswamy_are_transforms_of_uniform_numbers(kind: str, tg: Any, rng: np.random.Generator) -> None:
    rate, value = rng.uniform(0.5, 3, 4), rng.uniform(0.1, 0.9, (3, 4))
    program = f"""
D, rate, value = t.distributions, t.tensor(rate), t.tensor(value)
made = D.{kind}({TRANSFORMED[kind]})
wide = made.expand((3, 4))
same = D.TransformedDistribution(made.base_dist, made.transforms)
isinstance(made, D.TransformedDistribution), str(made.base_dist), str(made.transforms), \\
    same.log_prob(value), wide.log_prob(value), made.cdf(value), made.icdf(value), made.mean, \\
    wide.batch_shape, tuple(wide.rsample((2,)).shape)
"""
    assert_same(*evaluate(program, tg, rate=rate, value=value))


@pytest.mark.parametrize("concentration", [-0.3, 0.0, 0.4])
def test_generalised_pareto_has_logarithms_of_both_tails(
    concentration: float, tg: Any, rng: np.random.Generator
) -> None:
    value = rng.uniform(0.1, 1.5, 5)
    program = f"""
made = t.distributions.GeneralizedPareto(t.tensor(0.0), t.tensor(1.0), t.tensor({concentration}))
made.log_cdf(t.tensor(value)), made.log_survival_function(t.tensor(value))
"""
    assert_same(*evaluate(program, tg, value=value))


LAYERS = """
x, h = t.tensor(x), t.zeros(4, 2, 3)
lstm = t.nn.LSTM(5, 3, 2, batch_first=True, bidirectional=True)
gru = t.nn.GRU(5, 3)
"""
QUESTIONS = [
    "lstm.get_expected_hidden_size(x, None)", "lstm.get_expected_cell_size(x, None)",
    "gru.get_expected_hidden_size(x, None)", "lstm.get_expected_hidden_size(x[0], t.tensor([3, 1]))",
    "lstm.check_forward_args(x, (h, h), None)", "lstm.check_forward_args(x, (h[:1], h), None)",
    "lstm.check_forward_args(x, (h, h[:1]), None)", "gru.check_forward_args(x, h[:1], None)",
    "lstm.permute_hidden((h, h + 1), t.tensor([1, 0]))", "lstm.permute_hidden((h, h), None)",
    "gru.permute_hidden(h, t.tensor([1, 0]))",
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_recurrent_layers_tell_which_shapes_they_expect(question: str, tg: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4, 5)).astype(np.float32)
    assert_same(*evaluate(f"{LAYERS}{question}", tg, x=x))


def test_layers_and_results_have_the_attributes_of_pytorchs(tg: Any) -> None:
    program = """
made = t.compile(t.nn.Linear(1, 2), backend="eager")
top, both = t.ones(2, 3).max(0), t.linalg.svd(t.ones(2, 2))
"weight" in dir(made), "forward" in dir(made), t.nn.Upsample(scale_factor=2).name, \\
    t.nn.UpsamplingNearest2d(2).name, top.n_fields, both.n_sequence_fields, both.n_unnamed_fields
"""
    assert_same(*evaluate(program, tg))
