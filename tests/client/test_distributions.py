"""``distributions`` against PyTorch's: densities, moments, cumulative probabilities, divergences, and samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

Make = Callable[[Any, Any, Callable[..., Any]], Any]


def positive(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.uniform(0.5, 3.0, shape)


def matrix(rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    half = rng.standard_normal((2, n, n))
    return half @ half.swapaxes(-1, -2) + np.eye(n)


def real(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape)


def share(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.uniform(0.1, 0.9, shape)


def simplex(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.dirichlet(np.full(shape[-1], 2.0), shape[:-1])


# d: the module of distributions, r: a generator of parameters, a: makes a tensor of an array.
CASES: dict[str, Make] = {
    "Bernoulli": lambda d, r, a: d.Bernoulli(a(share(r, 4))),
    "Bernoulli logits": lambda d, r, a: d.Bernoulli(logits=a(real(r, 4))),
    "Beta": lambda d, r, a: d.Beta(a(1 + positive(r, 4)), a(1 + positive(r, 4))),
    "Binomial": lambda d, r, a: d.Binomial(5, a(share(r, 4))),
    "Categorical": lambda d, r, a: d.Categorical(a(simplex(r, 3, 4))),
    "Categorical logits": lambda d, r, a: d.Categorical(logits=a(real(r, 3, 4))),
    "Cauchy": lambda d, r, a: d.Cauchy(a(real(r, 4)), a(positive(r, 4))),
    "Chi2": lambda d, r, a: d.Chi2(a(positive(r, 4))),
    "ContinuousBernoulli": lambda d, r, a: d.ContinuousBernoulli(a(np.append(share(r, 3), 0.5))),
    "Dirichlet": lambda d, r, a: d.Dirichlet(a(1 + positive(r, 3, 4))),
    "Exponential": lambda d, r, a: d.Exponential(a(positive(r, 4))),
    "FisherSnedecor": lambda d, r, a: d.FisherSnedecor(a(4 + positive(r, 4)), a(8 + positive(r, 4))),
    "Gamma": lambda d, r, a: d.Gamma(a(positive(r, 4)), a(positive(r, 4))),
    "GeneralizedPareto": lambda d, r, a: d.GeneralizedPareto(
        *[a(x.astype(np.float32)) for x in (real(r, 3), positive(r, 3), r.uniform(0.1, 0.4, 3))]
    ),
    "Geometric": lambda d, r, a: d.Geometric(a(share(r, 4))),
    "Gumbel": lambda d, r, a: d.Gumbel(a(real(r, 4)), a(positive(r, 4))),
    "HalfCauchy": lambda d, r, a: d.HalfCauchy(a(positive(r, 4))),
    "HalfNormal": lambda d, r, a: d.HalfNormal(a(positive(r, 4))),
    "Independent": lambda d, r, a: d.Independent(d.Normal(a(real(r, 3, 4)), a(positive(r, 3, 4))), 1),
    "InverseGamma": lambda d, r, a: d.InverseGamma(a(4 + positive(r, 4)), a(positive(r, 4))),
    "Kumaraswamy": lambda d, r, a: d.Kumaraswamy(a(1 + positive(r, 4)), a(1 + positive(r, 4))),
    "LKJCholesky": lambda d, r, a: d.LKJCholesky(4, a(positive(r, 3))),
    "Laplace": lambda d, r, a: d.Laplace(a(real(r, 4)), a(positive(r, 4))),
    "LogNormal": lambda d, r, a: d.LogNormal(a(real(r, 4)), a(positive(r, 4) / 3)),
    "LogisticNormal": lambda d, r, a: d.LogisticNormal(a(real(r, 2, 3)), a(positive(r, 2, 3))),
    "LowRankMultivariateNormal": lambda d, r, a: d.LowRankMultivariateNormal(
        a(real(r, 2, 3)), a(real(r, 2, 3, 1)), a(positive(r, 2, 3))
    ),
    "MixtureSameFamily": lambda d, r, a: d.MixtureSameFamily(
        d.Categorical(a(simplex(r, 3, 4))), d.Normal(a(real(r, 3, 4)), a(positive(r, 3, 4)))
    ),
    "Multinomial": lambda d, r, a: d.Multinomial(6, a(simplex(r, 3, 4))),
    "MultivariateNormal": lambda d, r, a: d.MultivariateNormal(a(real(r, 2, 3)), a(matrix(r, 3))),
    "MultivariateNormal precision": lambda d, r, a: d.MultivariateNormal(
        a(real(r, 2, 3)), precision_matrix=a(matrix(r, 3))
    ),
    "NegativeBinomial": lambda d, r, a: d.NegativeBinomial(a(positive(r, 4)), a(share(r, 4))),
    "Normal": lambda d, r, a: d.Normal(a(real(r, 4)), a(positive(r, 4))),
    "Normal numbers": lambda d, r, a: d.Normal(a(real(r, 2, 1)), 2),
    "OneHotCategorical": lambda d, r, a: d.OneHotCategorical(a(simplex(r, 3, 4))),
    "Pareto": lambda d, r, a: d.Pareto(a(positive(r, 4)), a(4 + positive(r, 4))),
    "Poisson": lambda d, r, a: d.Poisson(a(positive(r, 4))),
    "RelaxedBernoulli": lambda d, r, a: d.RelaxedBernoulli(a(np.array(0.7)), a(share(r, 4))),
    "RelaxedOneHotCategorical": lambda d, r, a: d.RelaxedOneHotCategorical(a(np.array(0.7)), a(simplex(r, 3, 4))),
    "StudentT": lambda d, r, a: d.StudentT(a(4 + positive(r, 4)), a(real(r, 4)), a(positive(r, 4))),
    "TransformedDistribution": lambda d, r, a: d.TransformedDistribution(
        d.Normal(a(real(r, 4)), a(positive(r, 4))), [d.AffineTransform(1.0, a(-positive(r, 4))), d.TanhTransform()]
    ),
    "Uniform": lambda d, r, a: d.Uniform(a(real(r, 4)), a(3 + positive(r, 4))),
    "VonMises": lambda d, r, a: d.VonMises(a(real(r, 4)), a(positive(r, 4))),
    "Weibull": lambda d, r, a: d.Weibull(a(positive(r, 4)), a(1 + positive(r, 4))),
    "Wishart": lambda d, r, a: d.Wishart(a(5 + positive(r, 2)), a(matrix(r, 3))),
}


def pair(tg: Any, name: str, seed: int) -> tuple[Any, Any]:
    """The same distribution of both libraries, in float64."""
    make = CASES[name]
    ours = make(tg.distributions, np.random.default_rng(seed), tg.from_numpy)
    return ours, make(torch.distributions, np.random.default_rng(seed), torch.from_numpy)


def close(ours: Any, theirs: Any, what: str, rtol: float = 1e-6) -> None:
    rtol, atol = (rtol, 1e-8) if theirs.dtype.itemsize > 4 else (1e-4, 1e-5)
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=atol, err_msg=what, strict=True
    )


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("name", CASES)
def test_what_a_distribution_tells_is_what_pytorch_tells(tg: Any, seed: int, name: str) -> None:
    ours, theirs = pair(tg, name, seed)
    torch.manual_seed(seed)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape) and tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample or name == "VonMises"
    values = theirs.sample((5,))
    given = tg.from_numpy(values.numpy())
    close(ours.log_prob(given), theirs.log_prob(values), "log_prob")
    grown = (2, *theirs.batch_shape)
    close(ours.expand(grown).log_prob(given[:2]), theirs.expand(grown).log_prob(values[:2]), "expanded log_prob")
    probabilities = np.random.default_rng(seed).uniform(0.05, 0.95, values.shape).astype(values.numpy().dtype)
    for what, ours_given, theirs_given in (
        ("cdf", given, values), ("icdf", tg.from_numpy(probabilities), torch.from_numpy(probabilities))
    ):  # fmt: skip
        try:
            expected = getattr(theirs, what)(theirs_given)
        except NotImplementedError:
            continue
        close(getattr(ours, what)(ours_given), expected, what)
    for what in ("mean", "mode", "variance", "stddev"):
        try:
            expected = getattr(theirs, what)
        except (NotImplementedError, RuntimeError):  # some of PyTorch's take float32 alone
            continue
        if (name, what) == ("Kumaraswamy", "mode"):  # PyTorch takes the logarithm of a negative number
            continue
        close(getattr(ours, what), expected, what)
    try:
        expected = theirs.entropy()
    except NotImplementedError:
        pass
    else:
        close(ours.entropy(), expected, "entropy", 1e-5)


NOT_COMPARED = {"Cauchy", "HalfCauchy", "LKJCholesky"}
"""Cauchy variables have no mean, and PyTorch's Cholesky factors are not those of the paper: see below."""


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_COMPARED])
def test_samples_have_the_moments_of_the_distribution(tg: Any, seed: int, name: str) -> None:
    ours, theirs = pair(tg, name, seed)
    tg.manual_seed(seed)
    torch.manual_seed(seed)
    count = 20_000
    drawn, expected = ours.sample((count,)).numpy(), theirs.sample((count,)).numpy()
    assert drawn.shape == expected.shape and np.isfinite(drawn).all()
    spread = np.sqrt((drawn.var(0) + expected.var(0)) / count)
    if name == "VonMises":
        drawn, expected = np.cos(drawn), np.cos(expected)
    assert (abs(drawn.mean(0) - expected.mean(0)) <= 6 * spread + 1e-12).all(), "means"
    elements = zip(drawn.reshape(count, -1).T, expected.reshape(count, -1).T, strict=True)
    assert max(distance(a, b) for a, b in elements) <= 3 * np.sqrt(2 / count), "distribution functions"


def distance(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Return how far two samples' distribution functions are apart at most (Kolmogorov and Smirnov).

    For samples of one distribution with n values each, 3 sqrt(2 / n) is exceeded once in 30 million times.
    """
    places = np.union1d(a, b)
    shares = [np.searchsorted(np.sort(part), places, "right") / len(part) for part in (a, b)]
    return float(abs(shares[0] - shares[1]).max())


def test_correlations_have_the_variance_of_the_paper(tg: Any, seed: int) -> None:
    """Each correlation is a beta variable over (-1, 1), whatever its place (Lewandowski and others 2009)."""
    tg.manual_seed(seed)
    eta = tg.tensor([1.0, 2.5], dtype=tg.float64)
    lower = tg.distributions.LKJCholesky(4, eta).sample((20_000,))
    correlations = (lower @ lower.mT).numpy()
    for place in ((1, 0), (2, 0), (2, 1), (3, 1), (3, 2)):
        for index, value in enumerate((1.0, 2.5)):
            assert correlations[:, index, *place].var() == pytest.approx(1 / (2 * value + 3), rel=0.06)


def test_gradients_of_samples_follow_the_noise(tg: Any, seed: int) -> None:
    """Shifts and scales pass on the gradient; that of gamma samples is the implicit one of PyTorch."""
    d = tg.distributions
    tg.manual_seed(seed)
    loc, scale = tg.zeros(5, requires_grad=True), tg.full((5,), 2.0, requires_grad=True)
    x = d.Normal(loc, scale).rsample()
    x.sum().backward()
    np.testing.assert_allclose(loc.grad.numpy(), 1)
    np.testing.assert_allclose(scale.grad.numpy(), x.detach().numpy() / 2, rtol=1e-5)
    values = np.random.default_rng(seed).uniform(0.3, 8, 200)
    alpha = tg.tensor(values, requires_grad=True)
    sample = d.Gamma(alpha, tg.ones(200, dtype=tg.float64)).rsample()
    sample.sum().backward()
    expected = torch._standard_gamma_grad(torch.from_numpy(values), torch.from_numpy(sample.detach().numpy()))
    np.testing.assert_allclose(alpha.grad.numpy(), expected.numpy(), rtol=2e-3)


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("name", CASES)
def test_divergences_of_equal_types(tg: Any, seed: int, name: str) -> None:
    (ours, theirs), (other, their_other) = pair(tg, name, seed), pair(tg, name, seed + 1)
    try:
        expected = torch.distributions.kl_divergence(theirs, their_other)
    except NotImplementedError:
        return
    if name == "Wishart":  # PyTorch mixes the members of a batch up
        drawn = theirs.sample((20_000,))
        expected = (theirs.log_prob(drawn) - their_other.log_prob(drawn)).mean(0)
        close(tg.distributions.kl_divergence(ours, other), expected, "kl", 0.1)
        return
    close(tg.distributions.kl_divergence(ours, other), expected, "kl", 1e-5)


CROSSED = [
    ("Normal", "Laplace"), ("Uniform", "Normal"), ("Exponential", "Normal"), ("Gamma", "Normal"), ("Laplace", "Normal"),
    ("Beta", "Normal"), ("Exponential", "Gamma"), ("Gamma", "Exponential"), ("Normal", "Gamma"),
    ("Poisson", "Bernoulli"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), CROSSED)
def test_divergences_of_different_types(tg: Any, seed: int, first: str, second: str) -> None:
    (p, their_p), (q, their_q) = pair(tg, first, seed), pair(tg, second, seed)
    close(tg.distributions.kl_divergence(p, q), torch.distributions.kl_divergence(their_p, their_q), "kl")


def test_errors_of_parameters_and_values(tg: Any) -> None:
    d = tg.distributions
    with pytest.raises(ValueError, match=r"Expected parameter scale .*of distribution Normal.* to satisfy"):
        d.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(2,\)\)"):
        d.Normal(tg.zeros(2), tg.tensor([1.0, -1.0]), validate_args=True)
    with pytest.raises(ValueError, match="to be within the support"):
        d.Exponential(1.0, validate_args=True).log_prob(tg.tensor(-1.0))
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified"):
        d.Bernoulli()
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented"):
        d.kl_divergence(d.Normal(0.0, 1.0), d.Poisson(1.0))
    assert repr(d.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "exp": lambda d: d.ExpTransform(), "sigmoid": lambda d: d.SigmoidTransform(), "tanh": lambda d: d.TanhTransform(),
    "softplus": lambda d: d.SoftplusTransform(), "affine": lambda d: d.AffineTransform(1.0, -2.0),
    "stick": lambda d: d.StickBreakingTransform(), "corr": lambda d: d.CorrCholeskyTransform(),
    "composed": lambda d: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 3.0), d.PowerTransform(2.0)]),
    "independent": lambda d: d.IndependentTransform(d.ExpTransform(), 1),
    "reshape": lambda d: d.ReshapeTransform((6,), (2, 3)),
    "stack": lambda d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 0),
    "cat": lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [2, 4]),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(tg: Any, rng: np.random.Generator, name: str) -> None:
    ours, theirs = TRANSFORMS[name](tg.distributions), TRANSFORMS[name](torch.distributions)
    values = rng.standard_normal((2, 6))
    x, y = tg.from_numpy(values), torch.from_numpy(values)
    close(ours(x), theirs(y), "forward")
    close(ours.inv(ours(x)), y, "there and back")
    close(ours.log_abs_det_jacobian(x, ours(x)), theirs.log_abs_det_jacobian(y, theirs(y)), "slope")
    assert tuple(ours.forward_shape((2, 6))) == tuple(theirs.forward_shape((2, 6)))


@pytest.mark.parametrize(
    "region", ["real", "positive", "unit_interval", "simplex", "lower_cholesky", "positive_definite", "corr_cholesky"]
)
def test_regions_are_reached(tg: Any, rng: np.random.Generator, region: str) -> None:
    values = rng.standard_normal((3, 3))
    for name in ("biject_to", "transform_to"):
        try:
            theirs = getattr(torch.distributions, name)(getattr(torch.distributions.constraints, region))
        except NotImplementedError:
            continue
        ours = getattr(tg.distributions, name)(getattr(tg.distributions.constraints, region))
        reached = ours(tg.from_numpy(values))
        close(reached, theirs(torch.from_numpy(values)), name)
        assert bool(getattr(tg.distributions.constraints, region).check(reached).all())


def test_a_distribution_that_is_a_module_has_its_parameters_as_buffers(tg: Any) -> None:
    """Priors of gpytorch are such classes, and so follow their model to another device or type."""
    told = []
    for library in (torch, tg):

        class Prior(library.distributions.Gamma, library.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self, library: Any = library) -> None:
                library.nn.Module.__init__(self)
                library.distributions.Gamma.__init__(self, library.tensor(2.0), library.tensor(3.0), False)
                for name in ("concentration", "rate"):
                    value = getattr(self, name)
                    delattr(self, name)
                    self.register_buffer(name, value)

        told.append(Prior().log_prob(library.tensor([0.5, 2.0])).tolist())
    np.testing.assert_allclose(told[1], told[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["Categorical", "Bernoulli", "MultivariateNormal"])
def test_what_was_first_asked_for_without_gradients_has_them(tg: Any, rng: np.random.Generator, name: str) -> None:
    values, gradients = matrix(rng, 3)[0] if name == "MultivariateNormal" else share(rng, 2, 3), []
    for library in (torch, tg):
        given = library.tensor(values, requires_grad=True)
        if name == "MultivariateNormal":
            made = library.distributions.MultivariateNormal(library.zeros(3, dtype=library.float64), given)
        else:
            made = getattr(library.distributions, name)(probs=given)
        asked = "precision_matrix" if name == "MultivariateNormal" else "logits"
        with library.no_grad():
            getattr(made, asked)
        (getattr(made, asked) * given.detach()).sum().backward()
        gradients.append(given.grad.numpy())
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-9)
