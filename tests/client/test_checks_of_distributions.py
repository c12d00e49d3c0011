"""What distributions check: as PyTorch's, unless they were told not to; and what programs ask of their regions."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
D = t.distributions
C = D.constraints
class Own(D.Distribution):
    arg_constraints = {"rate": C.positive}
    support = C.positive
    def __init__(self, rate, validate_args=None):
        self.rate = rate
        super().__init__(rate.shape, validate_args=validate_args)
    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -value * self.rate
    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Own, _instance)
        new.rate = self.rate.expand(batch_shape)
        super(Own, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new
def kind(call):
    try:
        return "made", bool(call() is not None)
    except ValueError as error:
        return "refused", type(error).__name__ != ""
S = t.tensor([[2.0, 0.3], [0.3, 1.0]])
"""
CALLS = [
    "Own(t.tensor(1.0){}).log_prob(t.tensor(-1.0))", "Own(t.tensor(-1.0){})",
    "Own(t.tensor(1.0){}).expand((2,)).log_prob(t.tensor(-1.0))", "D.Normal(0.0, -1.0{})",
    "D.Normal(0.0, 1.0{}).cdf(0.5)", "D.Exponential(t.tensor(1.0){}).log_prob(t.tensor(-1.0))",
    "D.Wishart(t.tensor(0.5), S{})", "D.Wishart(t.tensor(4.0), S{})",
]  # fmt: skip


@pytest.mark.parametrize("told", ["", ", validate_args=True", ", validate_args=False"])
@pytest.mark.parametrize("call", CALLS)
def test_a_distribution_checks_what_it_is_told_to(call: str, told: str, tg: Any) -> None:
    assert_same(*evaluate(f"{PROLOGUE}\nkind(lambda: {call.format(told)})", tg))


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("call", [call.format("") for call in CALLS])
def test_the_default_of_the_class_may_be_set(call: str, default: bool, tg: Any) -> None:
    program = f"""
    before = D.Distribution._validate_args
    D.Distribution._validate_args = {default}
    made = kind(lambda: {call})
    D.Distribution._validate_args = before
    made
    """
    lines = "\n".join(line[4:] for line in program.splitlines())
    assert_same(*evaluate(f"{PROLOGUE}\n{lines}", tg))


REGIONS = [
    "C.real", "C.positive", "C.nonnegative", "C.unit_interval", "C.less_than(2.0)", "C.integer_interval(0, 3)",
    "C.half_open_interval(0.0, 1.0)", "C.nonnegative_integer",
]  # fmt: skip


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("bound", ["lower_bound", "upper_bound"])
def test_a_region_has_the_bounds_that_there_are(region: str, bound: str, tg: Any) -> None:
    assert_same(*evaluate(f"{PROLOGUE}\ngetattr({region}, {bound!r}, 'none'), str({region})", tg))


@pytest.mark.parametrize("name", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_a_random_matrix_keeps_the_scale_it_is_given(name: str, tg: Any) -> None:
    program = f"""
    made = D.Wishart(t.tensor(4.0), {name}=S.tril() if {name!r} == "scale_tril" else S)
    text = repr(made)
    text, made.scale_tril, made.covariance_matrix, made.log_prob(S), made.mean, made.entropy()
    """
    lines = "\n".join(line[4:] for line in program.splitlines())
    assert_same(*evaluate(f"{PROLOGUE}\n{lines.rstrip()}", tg))
