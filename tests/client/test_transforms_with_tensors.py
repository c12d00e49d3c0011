"""Distributions by transforms whose numbers are tensors, and regions between tensors, as packages' suites use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

BETWEEN = """
d = t.distributions
region = d.constraints.{kind}({low}, {high})
results = [make(region) for make in (d.biject_to, d.transform_to)]
[type(results[0]).__name__, *[to(x) for to in results], *[to.inv(to(x)) for to in results]]
"""
ENDS = {"numbers": ("0", "1"), "a tensor": ("t.tensor(0.0)", "t.tensor(1.0)"), "tensors": ("low", "low + 2.0")}


@pytest.mark.parametrize("kind", ["interval", "half_open_interval"])
@pytest.mark.parametrize("ends", ENDS)
def test_regions_between_tensors_are_led_into(kind: str, ends: str, tg: Any, rng: np.random.Generator) -> None:
    x, low = (rng.standard_normal(3).astype(np.float32) for _ in range(2))
    program = BETWEEN.format(kind=kind, low=ENDS[ends][0], high=ENDS[ends][1])
    assert_same(*evaluate(f"x, low = t.tensor(x), t.tensor(low)\n{program}", tg, x=x, low=low))


PAIRS = [
    ("t.tensor([0.0, 1.0]), 2", "t.tensor([0.0, 1.0]), 2.0"), ("0, 1", "0.0, t.ones(2)"), ("0, 1", "t.zeros(1), 2"),
    ("t.ones(2), 1", "t.zeros(2), 1"), ("1, 1", "1.0, True"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_affine_transforms_are_equal_where_their_numbers_are(first: str, second: str, tg: Any) -> None:
    program = "d = t.distributions\na, b = d.AffineTransform({}), d.AffineTransform({})\nlone = d.Normal(0.0, 1.0)\n"
    divergence = "d.kl_divergence(d.TransformedDistribution(lone, [a]), d.TransformedDistribution(lone, [b]))"
    assert_same(*evaluate(program.format(first, second) + "[a == b, a != b, a == a]", tg))
    assert_same(*evaluate(program.format(first, second) + divergence, tg))


GROWN = """
d = t.distributions
base = {base}
whole = d.TransformedDistribution(base, {transforms})
x = whole.sample((4,))
inner, outer = whole.base_dist.batch_shape, whole.batch_shape
(inner, outer, whole.event_shape, x.shape, whole.log_prob(t.full_like(x, 1.5)), whole.cdf(t.full_like(x, 1.5)))
"""
BASES = ["d.Normal(0.0, 1.0)", "d.LogNormal(t.zeros(2), 1.0)", "d.Independent(d.LogNormal(t.zeros(1), t.ones(2)), 1)"]
TRANSFORMS = [
    "[d.AffineTransform(t.tensor([0.5, 0.25]), 2.0)]", "d.AffineTransform(0, t.tensor([[1.0], [2.0]]))",
    "[d.ExpTransform(), d.PowerTransform(t.tensor([2.0, 3.0]))]", "(d.ExpTransform(),)", "[d.ExpTransform(), 3]", "[]",
    "[d.AffineTransform(t.tensor([0.5, 0.25]), 2.0, event_dim=1)]",
]  # fmt: skip


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("transforms", TRANSFORMS)
def test_samples_grow_with_the_numbers_of_their_transforms(base: str, transforms: str, tg: Any) -> None:
    ours, theirs = evaluate(GROWN.format(base=base, transforms=transforms), tg)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs))
    else:
        assert [tuple(shape) for shape in ours[:4]] == [tuple(shape) for shape in theirs[:4]]
        assert_same(ours[4:], theirs[4:])


def test_each_element_that_a_transform_adds_is_drawn_anew(tg: Any) -> None:
    shifted = tg.distributions.AffineTransform(tg.zeros(50), 1.0)
    drawn = tg.distributions.TransformedDistribution(tg.distributions.Normal(0.0, 1.0), shifted).sample()
    assert len(set(drawn.tolist())) == 50


COUNTED = """
one = t.distributions.{kind}({count}, {odds}=t.tensor(odds).{to}())
(one.total_count, one.total_count.dtype, one.mean, one.support)
"""


@pytest.mark.parametrize("kind", ["Binomial", "NegativeBinomial"])
@pytest.mark.parametrize("odds", ["probs", "logits"])
@pytest.mark.parametrize("count", ["3", "t.tensor([3, 4])", "t.tensor(4.0)"])
@pytest.mark.parametrize("to", ["float", "double"])
def test_numbers_of_trials_have_the_type_of_the_odds(
    kind: str, odds: str, count: str, to: str, tg: Any, rng: np.random.Generator
) -> None:
    program = COUNTED.format(kind=kind, count=count, odds=odds, to=to)
    ours, theirs = evaluate(program, tg, odds=rng.uniform(0.1, 0.9, 2))
    assert_same(ours[:-1], theirs[:-1])
    assert repr(ours[-1]) == repr(theirs[-1])


BASES = [
    ("distributions.Transform", "()"), ("distributions.AffineTransform", "(0.0, 1.0)"),
    ("distributions.PowerTransform", "(2.0,)"), ("distributions.StackTransform", "([t.distributions.ExpTransform()],)"),
    ("distributions.Normal", "(0.0, t.ones(2))"), ("distributions.Distribution", "()"),
    ("distributions.constraints.independent", "(t.distributions.constraints.real, 1)"),
    ("utils.data.ConcatDataset", "([[1]],)"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "arguments"), BASES)
def test_what_a_class_is_derived_from_besides_is_initialised(base: str, arguments: str, tg: Any) -> None:
    program = f"""
    class Layer(t.{base}, t.nn.Module):
        __hash__ = t.nn.Module.__hash__
        def __init__(self, *args):
            super().__init__(*args)
            self.weight = t.nn.Parameter(t.ones(2))
    [name for name, _ in Layer(*{arguments}).named_parameters()]
    """
    assert_same(*evaluate(program, tg))
